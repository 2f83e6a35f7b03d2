"""Runs beside what papers report: the difference, and all that does not match. Never part of a best or a front."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otil_exp.models.files import RANDOM
from otil_exp.published.tables import Hardware, Line, Settings
from otil_exp.report.collect import Run
from otil_exp.report.columns import Column, column_of
from otil_exp.report.comparable import baseline, engine, interconnect, machine, meaningless

SPEEDUP = "speedup"
"""Key of a time beside that of the same source's single GPU."""

IMAGE_S = "latency/image_s"

STAND_INS = {
    "fid_clean/orig": ("fid/orig", "resized as TensorFlow 1 does, not as clean-fid: metrics=distrifusion"),
    "fid_clean/gt": ("fid/gt", "resized as TensorFlow 1 does, not as clean-fid: metrics=distrifusion"),
}
"""Figures that a run may have in another convention: key, and what is different."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One published figure beside a run's."""

    header: str
    published: str
    measured: str = "-"
    difference: str = ""
    notes: tuple[str, ...] = ()
    """How the two were computed differently, or why there is none."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """A run and a line of a published table of the same method, model, size, steps, scheduler, GPUs and split."""

    run: Run
    line: Line
    figures: list[Beside]
    apart: list[str]
    """What does not match nevertheless, or is not known to."""


@dataclass(frozen=True)
class Published:
    """What the runs of a report have beside them."""

    matches: list[Match]

    unmatched: list[tuple[Run, str]]
    """Finished runs without a published figure, and what the nearest line has other."""


def beside_published(runs: Sequence[Run], lines: Sequence[Line]) -> Published:
    """The lines that match finished runs, in the order of the runs."""
    matches, unmatched = [], []
    for run in (run for run in runs if run.status == "done" and run.config):
        own = [line for line in lines if _is_method(run, line)]
        found = [line for line in own if not _keeps_apart(run, line)]
        matches += [_match(run, line, runs) for line in found]
        if not found:
            unmatched.append((run, _nearest(run, own)))
    return Published(matches, unmatched)


def _is_method(run: Run, line: Line) -> bool:
    """Whether a line is of the run's method with the settings that the line asks for."""
    own = run.record.get("effective", {}).get("preset") or {}
    return line.row.ours == run.method and _within(line.row.preset, own)


def _within(wanted: Mapping[str, Any], own: Any) -> bool:
    if not isinstance(own, Mapping):
        return False
    return all(
        _within(value, own.get(key)) if isinstance(value, Mapping) else own.get(key) == value
        for key, value in wanted.items()
    )


def _keeps_apart(run: Run, line: Line) -> list[str]:
    """Which of the settings that a match must share are other ones, in words."""
    said: list[tuple[str, Any, Any]] = [
        ("model", _architecture(run), line.settings.model),
        ("size", f"{run.config.get('width')}x{run.config.get('height')}", _size(line.settings)),
        ("steps", run.config.get("num_inference_steps"), line.settings.num_inference_steps),
        ("scheduler", run.config.get("scheduler"), line.settings.scheduler),
        ("GPUs", _topology(run, "world_size"), line.row.gpus),
    ]
    if line.row.gpus > 1:
        said.append(("split", _topology(run, "split_batch"), line.settings.split_batch))
    return [_other(name, own, theirs) for name, own, theirs in said if theirs is not None and own != theirs]


def _architecture(run: Run) -> str:
    model = run.config.get("model", {})
    known = model.get("architecture")
    return str(model.get("name") if known in (None, "files") else known)


def _size(settings: Settings) -> str:
    return f"{settings.width}x{settings.height}"


def _topology(run: Run, key: str) -> Any:
    return run.record.get("topology", {}).get(key)


def _other(name: str, own: Any, theirs: Any) -> str:
    return f"{name} {_plain(own)}, published {_plain(theirs)}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _nearest(run: Run, own: Sequence[Line]) -> str:
    if not own:
        return f"no published figure of {run.method} with these settings"
    nearest = min(own, key=lambda line: len(_keeps_apart(run, line)))
    return f"nearest is {nearest.title}; other: {'; '.join(_keeps_apart(run, nearest))}"


def _match(run: Run, line: Line, runs: Sequence[Run]) -> Match:
    figures = [_figure(run, line, key, value, runs) for key, value in line.row.figures.items() if _has_counterpart(key)]
    return Match(run=run, line=line, figures=figures, apart=_apart(run, line))


def _has_counterpart(key: str) -> bool:
    """Whether we measure it: keys of metrics.json have a family."""
    return key == SPEEDUP or column_of(key).header != key


def _figure(run: Run, line: Line, key: str, value: float, runs: Sequence[Run]) -> Beside:
    column = _SPEEDUP_COLUMN if key == SPEEDUP else column_of(key)
    notes = [line.table.conventions[key]] if key in line.table.conventions else []
    measured = _speedup(run, runs) if key == SPEEDUP else run.value(key)
    if measured is None and key in STAND_INS:
        instead, why = STAND_INS[key]
        measured = run.value(instead)
        notes += [] if measured is None else [why]
    time = IMAGE_S if key == SPEEDUP else key
    why_not = _worthless(run, time)
    if measured is None or why_not:
        notes += [why_not or _missing(run, key)]
        return Beside(header=column.header, published=column.text(value), notes=tuple(notes))
    if not column.is_time and key != SPEEDUP:
        notes += _few(run, line, key)
    return Beside(
        header=column.header,
        published=column.text(value),
        measured=_with_error(run, column, measured),
        difference=_difference(column, measured, value),
        notes=tuple(notes),
    )


_SPEEDUP_COLUMN = Column(key=SPEEDUP, header="speed-up", better=1, form=".2f")


def _speedup(run: Run, runs: Sequence[Run]) -> float | None:
    """How many times faster a picture is than on the single GPU that it can be compared with."""
    reference, own = baseline(run, runs, IMAGE_S), run.value(IMAGE_S)
    other = reference.value(IMAGE_S) if reference else None
    return other / own if other and own else None


def _worthless(run: Run, key: str) -> str:
    """Why a figure of the run says nothing; empty where it does."""
    if why := meaningless(run, key):
        return f"its time means nothing: {why}"
    random = run.config.get("model", {}).get("source") == RANDOM
    return "random weights: its pictures mean nothing" if random and not key.startswith("latency/") else ""


def _missing(run: Run, key: str) -> str:
    if key in (IMAGE_S, SPEEDUP):
        return "measured by mode=benchmark" + (", with preset=reference beside it" if key == SPEEDUP else "")
    return str(run.entry(key).get("missing") or "not measured")


def _few(run: Run, line: Line, key: str) -> list[str]:
    n, theirs = run.entry(key).get("n"), line.settings.pictures
    return [f"n {n}, published {theirs}"] if theirs is not None and n is not None and n != theirs else []


def _with_error(run: Run, column: Column, value: float) -> str:
    error = run.entry(column.key).get("standard_error")
    return f"{column.text(value)} ±{column.text(error)}" if error else column.text(value)


def _difference(column: Column, measured: float, published: float) -> str:
    percent = f" ({100 * (measured - published) / published:+.1f} %)" if published else ""
    return column.signed(measured - published) + percent


def _apart(run: Run, line: Line) -> list[str]:
    """Settings, hardware and versions that are other ones, or of which one side is silent."""
    settings, hardware = line.settings, line.table.hardware
    effective, model = run.record.get("effective", {}), run.config.get("model", {})
    exchanges = line.row.gpus > 1 and effective.get("warmup_steps") is not None
    own_and_theirs: list[tuple[str, Any, Any]] = [
        ("guidance", _number(run.config.get("guidance_scale")), settings.guidance_scale),
        ("warm-up", effective.get("warmup_steps"), settings.warmup_steps if exchanges else None),
        ("groupnorm", run.config.get("groupnorm"), settings.groupnorm if exchanges else None),
        ("share of blocks", _number(run.config.get("k", {}).get("budget")), settings.k),
    ]
    found = [_other(name, own, theirs) for name, own, theirs in own_and_theirs if theirs is not None and own != theirs]
    if model.get("source") == RANDOM:
        found.append("weights random, published trained ones")
    return [*found, *_hardware(run, hardware, alone=line.row.gpus == 1), *_silent(line)]


def _hardware(run: Run, hardware: Hardware, alone: bool) -> list[str]:
    versions = run.record.get("versions", {})
    said: list[tuple[str, str, str | None, Callable[[str, str], bool]]] = [
        ("GPU", machine(run), hardware.gpu, lambda own, theirs: all(_has(own, word) for word in _model_words(theirs))),
        ("interconnect", interconnect(run), None if alone else hardware.interconnect, str.__eq__),
        ("PyTorch", str(versions.get("torch") or "not known"), hardware.torch, _same_minor),
        ("engine", engine(run), hardware.engine, str.__eq__),
    ]
    return [_other(name, own, theirs) for name, own, theirs, same in said if theirs and not same(own, theirs)]


def _model_words(gpu: str) -> list[str]:
    """What names the model: of A100 80 GB SXM the first and the last word, of RTX 3090 both."""
    return [word for word in gpu.split() if word not in ("GB", "80")]


def _has(own: str, word: str) -> bool:
    return word.lower() in own.lower()


def _same_minor(own: str, theirs: str) -> bool:
    return own.split("+")[0].split(".")[:2] == theirs.split(".")[:2]


def _silent(line: Line) -> list[str]:
    """What the source does not say, of all that a figure depends on."""
    settings, hardware, several = line.settings, line.table.hardware, line.row.gpus > 1
    unsaid = [
        ("guidance", settings.guidance_scale is None),
        ("scheduler", settings.scheduler is None),
        ("warm-up", several and settings.warmup_steps is None),
        ("split", several and settings.split_batch is None),
        ("interconnect", several and hardware.interconnect is None),
        ("PyTorch", hardware.torch is None),
        ("engine", hardware.engine is None),
    ]
    names = [name for name, silent in unsaid if silent]
    return [f"not published: {', '.join(names)}"] if names else []


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
