"""The figures of runs as they are shown: value, spread, distance to the reference, best of what can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from otil_exp.report.best import best_of, rivals
from otil_exp.report.collect import Run
from otil_exp.report.columns import Column
from otil_exp.report.comparable import baseline, doubt, meaningless
from otil_exp.report.paired import difference, too_few


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure as shown."""

    text: str = "-"
    value: float | None = None
    error: str = ""
    """Standard error of the mean over pictures, in the column's decimals; empty where it is not known."""
    n: int | None = None
    """Pictures of a score; None for times and traffic, which count steps."""
    delta: str = ""
    title: str = ""
    """Samples, spread, and why not to trust it."""
    best: bool = False
    tied: bool = False
    """Not the best, and over the same prompts not told apart from it."""
    doubtful: bool = False

    @property
    def with_error(self) -> str:
        """31.42 ±1.27"""
        return f"{self.text} ±{self.error}" if self.error else self.text


def figures(runs: Sequence[Run], column: Column) -> list[Figure]:
    """One figure a run, the best of comparable finished ones marked; the reference takes no part in that."""
    found = {run.number: _figure(run, runs, column) for run in runs}
    among = rivals(runs, column)
    return [_marked(run, among.get(run.number, []), found, column) for run in runs]


def _figure(run: Run, runs: Sequence[Run], column: Column) -> Figure:
    value, entry = run.value(column.key), run.entry(column.key)
    if value is None:
        return Figure(title=str(entry.get("missing", "")))
    error, why = entry.get("standard_error"), doubt(run, runs, column.key)
    samples = "pictures" if column.is_score else "steps"
    few = f", too few to say much: needs {column.enough}" if column.enough and entry.get("n", 0) < column.enough else ""
    facts = [f"{entry['n']} {samples}{few}" if "n" in entry else "", _spread(run, column), why]
    return Figure(
        text=column.text(value),
        value=value,
        error=column.text(error) if error else "",
        n=entry.get("n") if column.is_score else None,
        delta=_delta(run, runs, column, value),
        title="; ".join(fact for fact in facts if fact),
        doubtful=bool(why),
    )


def _spread(run: Run, column: Column) -> str:
    """Median and 5 % to 95 % of what a mean was made of, where they are known."""
    entry = run.entry(column.key)
    known = {name: entry[name] for name in ("median", "p5", "p95") if entry.get(name) is not None}
    if len(known) < 3:
        return ""
    return (
        f"median {column.text(known['median'])}, 5 % to 95 %: {column.text(known['p5'])} to {column.text(known['p95'])}"
    )


def _delta(run: Run, runs: Sequence[Run], column: Column, value: float) -> str:
    """The value beside the reference's: 1.83x, +0.41; empty where there is nothing to set it against."""
    if column.delta == "natural":
        natural = run.value(column.key.replace("seam/", "reference/"))
        return "" if natural is None else column.signed(value - natural)
    reference = baseline(run, runs, column.key) if column.delta else None
    other = reference.value(column.key) if reference else None
    if reference is None or other is None or meaningless(run, column.key) or meaningless(reference, column.key):
        return ""
    if column.delta == "speedup":
        return f"{other / value:.2f}x" if value else ""
    return column.signed(value - other)


def _marked(run: Run, among: Sequence[Run], found: Mapping[int, Figure], column: Column) -> Figure:
    figure = found[run.number]
    if not column.better or len(among) < 2:
        return figure
    best, texts = best_of(among, column), {column.text(other.value(column.key) or 0) for other in among}
    if len(texts) == 1:
        return figure  # all alike: nobody is ahead
    if figure.text == found[best.number].text:
        return replace(figure, best=True)
    apart = difference(run, best, column.key)
    return replace(figure, tied=not apart.told_apart if apart else too_few(run, best, column.key))
