"""What keeps runs from being compared, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otil_exp.metrics.metric import REFERENCE
from otil_exp.report.collect import Run
from otil_exp.report.columns import Column
from otil_exp.report.comparable import (
    SAME_JUDGEMENT,
    commit,
    engine,
    interconnect,
    machine,
    meaningless,
    model,
    prompts,
    size,
)

Words = Callable[[Run], str]


def _setting(key: str) -> Words:
    return lambda run: str(run.config.get(key))


def _version(package: str) -> Words:
    return lambda run: str(run.record.get("versions", {}).get(package))


PICTURE_SETTINGS: dict[str, Words] = {
    "model": model,
    "size": size,
    "steps": _setting("num_inference_steps"),
    "guidance": _setting("guidance_scale"),
    "scheduler": _setting("scheduler"),
}
"""What a picture key stands for, in words."""

JUDGED = {"groupnorm": _setting("groupnorm"), "prompts": prompts}

TIMED = {"machine": machine, "mode": _setting("mode"), "engine": engine}

CODE = {"torch": _version("torch"), "diffusers": _version("diffusers"), "commit": commit}
"""What does not keep runs from being compared, and may explain a difference."""


def warnings(runs: Sequence[Run], columns: Sequence[Column]) -> list[str]:
    """One sentence for everything that differs between runs and should not, or is known to mean nothing.

    columns: the figures that are shown.
    """
    begun = [run for run in runs if run.record.get("picture_key") and run.config]
    keys = by_value(begun, lambda run: run.picture_key)
    found = [*_differences("Pictures", PICTURE_SETTINGS, begun)] if len(keys) > 1 else []
    found += [*_differences("Pictures", JUDGED, begun), *_differences("Times", TIMED, begun)]
    linked = [run for run in begun if run.record.get("gpu_links") and not run.is_reference]
    found += _differences("Times", {"interconnect": interconnect}, linked)
    found += [f"{say(name, values)}: this may explain a difference." for name, values in _differing(CODE, begun)]
    for column in columns:
        found += _judged_differently(column, begun)
    time = "latency/step_ms"
    found += [
        f"Times mean nothing for {numbers(which)}: {why}. Their pictures and bytes count."
        for why, which in by_value(begun, lambda run: meaningless(run, time)).items()
        if why
    ]
    found += _other_engines(begun)
    return found + _alone(begun) + _outlived(begun)


def say(name: str, values: dict[str, list[Run]]) -> str:
    """steps differs: 4 in runs 1-2; 50 in run 3"""
    return f"{name} differs: {'; '.join(f'{value} in {numbers(which)}' for value, which in values.items())}"


def numbers(runs: Sequence[Run]) -> str:
    """runs 1-3, 7"""
    spans: list[list[int]] = []
    for number in sorted(run.number for run in runs):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    listed = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"{'run' if len(runs) == 1 else 'runs'} {listed}"


def by_value(runs: Sequence[Run], words: Words) -> dict[str, list[Run]]:
    values: dict[str, list[Run]] = {}
    for run in runs:
        values.setdefault(words(run), []).append(run)
    return values


def _differing(settings: dict[str, Words], runs: Sequence[Run]) -> list[tuple[str, dict[str, list[Run]]]]:
    found = [(name, by_value(runs, words)) for name, words in settings.items()]
    return [(name, values) for name, values in found if len(values) > 1]


def _differences(what: str, settings: dict[str, Words], runs: Sequence[Run]) -> list[str]:
    return [
        f"{what} are not comparable throughout, {say(name, values)}." for name, values in _differing(settings, runs)
    ]


def _judged_differently(column: Column, runs: Sequence[Run]) -> list[str]:
    """Scorers, ground truths, resizing and sample counts that differ, the last where the prompts do not explain it."""
    measured = [run for run in runs if run.value(column.key) is not None]
    if not column.is_score:
        return []
    alike = len(by_value(measured, lambda run: SAME_JUDGEMENT["prompts"](run, column.key))) == 1
    found = []
    for name in ("scorer", "ground truth", "preprocessing", *["n"] * alike):
        values = by_value(measured, lambda run, name=name: SAME_JUDGEMENT[name](run, column.key))  # type: ignore[misc]
        if len(values) > 1:
            found.append(f"{column.header} is not comparable throughout, {say(name, values)}.")
    return found


def _other_engines(runs: Sequence[Run]) -> list[str]:
    """Runs whose steps did not get the engine that was asked for."""
    fallen_back = [run for run in runs if ", because" in str(run.record.get("engine_runs_as"))]
    words = by_value(fallen_back, lambda run: f"{run.config['engine']['name']} runs as {run.record['engine_runs_as']}")
    return [f"engine={said} ({numbers(which)})." for said, which in words.items()]


def _alone(runs: Sequence[Run]) -> list[str]:
    alone = [run for run in runs if not run.is_reference and run.reference is None]
    if not alone:
        return []
    return [
        f"No finished reference run beside {numbers(alone)}: run the same command with preset=reference, "
        "then their own again, which only scores them anew."
    ]


def _outlived(runs: Sequence[Run]) -> list[str]:
    """Scores against a reference run that is no longer the one that is there."""
    found = []
    for run in runs:
        before = (run.record.get("scored_with") or {}).get(REFERENCE)
        now = None if run.reference is None else [run.reference.folder.path.name, run.reference.record.get("ended")]
        if before is not None and before != now:
            found.append(run)
    if not found:
        return []
    return [
        f"Scores against the reference of {numbers(found)} are from one that is gone or was made anew since: type "
        "their command again, or otil-exp-evaluate with their grid, to score them anew."
    ]
