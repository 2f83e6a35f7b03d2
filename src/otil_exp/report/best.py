"""Whose figure is the best, and among which runs that is asked."""

from __future__ import annotations

from collections.abc import Sequence

from otil_exp.report.collect import Run
from otil_exp.report.columns import Column
from otil_exp.report.comparable import basis, meaningless


def takes_part(run: Run, column: Column) -> bool:
    """Whether a run's figure may be the best: it is finished, has one that means something, and is no reference."""
    measured = run.status == "done" and not run.is_reference and run.value(column.key) is not None
    return measured and not meaningless(run, column.key)


def rivals(run: Run, runs: Sequence[Run], column: Column) -> list[Run]:
    """The runs that a best is sought among with this one, itself too; none where it takes no part."""
    if not takes_part(run, column):
        return []
    own = basis(run, column.key)
    return [other for other in runs if takes_part(other, column) and basis(other, column.key) == own]


def best_of(runs: Sequence[Run], column: Column) -> Run:
    """The one with the best mean."""
    return max(runs, key=lambda run: (run.value(column.key) or 0) * column.better)
