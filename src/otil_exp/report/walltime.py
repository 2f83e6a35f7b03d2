"""What the wall time of runs was made of: the seconds of their phases, as a bar a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otil_exp.method_style import COLOURS
from otil_exp.report.collect import Run


@dataclass(frozen=True, kw_only=True)
class Part:
    """One phase of one run."""

    seconds: float
    text: str
    """m:ss, or seconds below a minute."""
    share: float
    """Of the longest run's wall time, per cent: the part's length in the bar."""


@dataclass(frozen=True, kw_only=True)
class WallTime:
    """A run's phases, in the order of `names`; None where it had none of that name."""

    run: Run
    parts: list[Part | None]
    total: str


@dataclass(frozen=True, kw_only=True)
class WallTimes:
    """Those of a report."""

    names: list[str]
    colours: list[str]
    rows: list[WallTime]


def seconds_of(run: Run) -> dict[str, float]:
    """Seconds of every phase, as record.json has them: of the last attempt. Empty for runs that have not ended."""
    found = run.record.get("phases") or {}
    return {str(name): float(value) for name, value in found.items()}


def phase_names(runs: Sequence[Run]) -> list[str]:
    """All phases of some runs, in the order in which they come."""
    longest = sorted(runs, key=lambda run: -len(seconds_of(run)))
    return list(dict.fromkeys(name for run in longest for name in seconds_of(run)))


def wall_times(runs: Sequence[Run]) -> WallTimes | None:
    """The bars of runs whose records have phases; None where none has."""
    known = {run.number: seconds for run in runs if (seconds := seconds_of(run))}
    if not known:
        return None
    names, longest = phase_names(runs), max(sum(seconds.values()) for seconds in known.values()) or 1.0
    rows = [
        WallTime(
            run=run,
            parts=[_part(known[run.number].get(name), longest) for name in names],
            total=_text(sum(known[run.number].values())),
        )
        for run in runs
        if run.number in known
    ]
    return WallTimes(names=names, colours=[COLOURS[i % len(COLOURS)] for i in range(len(names))], rows=rows)


def _part(seconds: float | None, longest: float) -> Part | None:
    if seconds is None:
        return None
    return Part(seconds=seconds, text=_text(seconds), share=100 * seconds / longest)


def _text(seconds: float) -> str:
    """4.2 s, 1:40 or 2:05:00."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
