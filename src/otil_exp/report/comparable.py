"""What keeps runs from being compared, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from otil_exp.report.collect import Run

Aspect = Callable[[Run], str]


def warnings(runs: Sequence[Run]) -> list[str]:
    """One sentence for everything that differs between runs and should not, or is known to mean nothing."""
    begun = [run for run in runs if run.record and run.config]
    found = [*_differences("Pictures", PICTURE_ASPECTS, begun), *_differences("Times", TIME_ASPECTS, begun)]
    meaningless = _by_value(begun, lambda run: str(run.record.get("times_meaningless") or ""))
    found += [
        f"Times mean nothing for {numbers(which)}: {why}. Pictures and bytes do."
        for why, which in meaningless.items()
        if why
    ]
    alone = [run for run in begun if not run.is_reference and run.reference is None]
    if alone:
        found.append(
            f"No finished reference run beside {numbers(alone)}: run the same command with preset=reference, "
            "then their own again, which only scores them anew."
        )
    return found


def machine(run: Run) -> str:
    """What the run's ranks computed on: its GPUs, or the CPU."""
    cpu, gpus = run.record.get("cpu") or {}, run.record.get("gpus") or []
    if run.record.get("device") == "cpu" or not gpus:
        return f"{cpu.get('model', '?')}, {cpu.get('cores', '?')} cores"
    return ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))


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


def _setting(key: str) -> Aspect:
    return lambda run: str(run.config.get(key))


def _version(package: str) -> Aspect:
    return lambda run: str(run.record.get("versions", {}).get(package))


def _prompts(run: Run) -> str:
    """Which prompts and seeds, short enough for a sentence."""
    prompts: list[dict[str, Any]] = run.prompts
    if not prompts:
        return "none"
    first = prompts[0]
    return f"{len(prompts)} from “{first['text'][:40]}”, seed {first['seed']}"


PICTURE_ASPECTS: dict[str, Aspect] = {
    "model": model,
    "size": size,
    "steps": _setting("num_inference_steps"),
    "guidance": _setting("guidance_scale"),
    "scheduler": _setting("scheduler"),
    "groupnorm": _setting("groupnorm"),
    "prompts": _prompts,
}

TIME_ASPECTS: dict[str, Aspect] = {
    "machine": machine,
    "mode": _setting("mode"),
    "engine": lambda run: str(run.config.get("engine", {}).get("name")),
    "torch": _version("torch"),
    "diffusers": _version("diffusers"),
    "commit": commit,
}


def _differences(what: str, aspects: dict[str, Aspect], runs: Sequence[Run]) -> list[str]:
    found = []
    for name, aspect in aspects.items():
        values = _by_value(runs, aspect)
        if len(values) > 1:
            listed = "; ".join(f"{value} in {numbers(which)}" for value, which in values.items())
            found.append(f"{what} are not comparable throughout, {name} differs: {listed}.")
    return found


def _by_value(runs: Sequence[Run], aspect: Aspect) -> dict[str, list[Run]]:
    values: dict[str, list[Run]] = {}
    for run in runs:
        values.setdefault(aspect(run), []).append(run)
    return values
