"""Which figures can be compared: decided here alone, for best marks, fronts, speed-ups, grey times and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from otil_exp.report.collect import Run

Aspect = Callable[[Run, str], str]
"""What figures must share: of a run, and of one of its metrics by key."""


def comparable(one: Run, other: Run, *keys: str) -> bool:
    """Whether two runs' values of all these metrics can be compared."""
    return basis(one, *keys) == basis(other, *keys)


def basis(run: Run, *keys: str) -> tuple[str, ...]:
    """Equal for the runs whose values of these metrics can be compared."""
    return tuple(aspect(run, key) for key in keys for aspect in aspects(key).values())


def aspects(key: str) -> Mapping[str, Aspect]:
    """What values of this metric must share, by the name of it."""
    if is_time(key):
        return SAME_PICTURES | SAME_MACHINE
    if key.startswith("traffic/"):
        return SAME_PICTURES
    return SAME_PICTURES | SAME_JUDGEMENT


def is_time(key: str) -> bool:
    """Whether a metric depends on the machine."""
    return key.startswith(("latency/", "memory/"))


def meaningless(run: Run, key: str) -> str:
    """Why a value says nothing at all; empty if it does."""
    return str(run.record.get("times_meaningless") or "") if key.startswith("latency/") else ""


def baseline(run: Run, runs: Sequence[Run], key: str) -> Run | None:
    """The reference run that a value is set against: one that it can be compared with, where there is one.

    Pictures are compared with `run.reference` alone; a grid over machines or engines has a reference of each for times.
    """
    if run.is_reference:
        return None
    listed = [other for other in runs if other.is_reference and other.status == "done"]
    found = [other for other in [run.reference, *listed] if other is not None and other.value(key) is not None]
    return next((other for other in found if comparable(run, other, key)), None)


def doubt(run: Run, runs: Sequence[Run], key: str) -> str:
    """Why a time says nothing, or nothing beside the reference; empty if it does."""
    if why := meaningless(run, key):
        return f"means nothing: {why}"
    reference = run.reference
    if not is_time(key) or reference is None or reference.value(key) is None or baseline(run, runs, key):
        return ""
    other = "; ".join(
        f"another {name} than the reference's, {aspect(reference, key)}"
        for name, aspect in aspects(key).items()
        if aspect(run, key) != aspect(reference, key)
    )
    return other or f"not beside the reference's: it means nothing ({meaningless(reference, key)})"


def machine(run: Run) -> str:
    """What a rank computed on: models of GPU, whatever their number, or the CPU."""
    cpu, gpus = run.record.get("cpu") or {}, run.record.get("gpus") or []
    if run.record.get("device") == "cpu" or not gpus:
        return f"{cpu.get('model', '?')}, {cpu.get('cores', '?')} cores"
    return ", ".join(sorted(set(gpus)))


def engine(run: Run) -> str:
    """The engine that the steps really got."""
    asked = run.config.get("engine", {}).get("name")
    return str(run.record.get("engine_runs_as") or asked).partition(", because")[0]


def interconnect(run: Run) -> str:
    """NVLink or PCIe, as `nvidia-smi topo -m` in the record says; what else is known where it says nothing."""
    if run.record.get("times_meaningless"):
        return "none: the ranks share a device"
    links = str(run.record.get("gpu_links") or "")
    if not links:
        return "not known"
    return "NVLink" if any(word.startswith("NV") and word[2:].isdecimal() for word in links.split()) else "PCIe"


def size(run: Run) -> str:
    """Width x height of the pictures, in pixels."""
    return f"{run.config.get('width')}x{run.config.get('height')}"


def model(run: Run) -> str:
    """Name, source and number format of the model."""
    found = run.config.get("model", {})
    return f"{found.get('name')} ({found.get('source')}, {found.get('dtype')})"


def commit(run: Run) -> str:
    """Commit of the code in ten digits, with -dirty for changed files; none where it came from a wheel."""
    found = str(run.record.get("git_commit") or "none")
    return found[:10] + ("-dirty" if found.endswith("-dirty") else "")


def prompts(run: Run) -> str:
    """Which prompts and seeds, short enough for a sentence."""
    found: list[dict[str, Any]] = run.prompts
    if not found:
        return "none"
    first = found[0]
    return f"{len(found)} from “{first['text'][:40]}”, seed {first['seed']}"


def _prompts_and_seeds(run: Run, key: str) -> str:
    return run.prompts_and_seeds


def _said(field: str) -> Aspect:
    """What the metric's own entry says of how it was judged."""
    return lambda run, key: str(run.entry(key).get(field))


def _truth(found: Any) -> str:
    """Which pictures, wherever a machine has them: val2017 (5000 pictures, 1a2b3c)."""
    if not isinstance(found, dict):
        return str(found)
    paired = ", as pairs" if found.get("paired") else ""
    return f"{Path(str(found.get('path'))).name} ({found.get('count')} pictures, {found.get('digest')}{paired})"


SAME_PICTURES: dict[str, Aspect] = {"picture": lambda run, key: run.picture_key}
"""Model, size, steps, guidance, scheduler: what makes a picture but the method."""

SAME_MACHINE: dict[str, Aspect] = {
    "machine": lambda run, key: machine(run),
    "engine": lambda run, key: engine(run),
    "mode": lambda run, key: str(run.config.get("mode")),
}

SAME_JUDGEMENT: dict[str, Aspect] = {
    "prompts": _prompts_and_seeds,
    "groupnorm": lambda run, key: str(run.config.get("groupnorm")),
    "n": _said("n"),
    "scorer": _said("model"),
    "ground truth": lambda run, key: _truth(run.entry(key).get("ground_truth")),
    "preprocessing": _said("resize"),
}
