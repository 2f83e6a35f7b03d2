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


def rivals(runs: Sequence[Run], column: Column) -> dict[int, list[Run]]:
    """By number, the runs that a best is sought among with this one, itself too; those that take no part have none."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if takes_part(run, column):
            groups.setdefault(basis(run, column.key), []).append(run)
    return {run.number: group for group in groups.values() for run in group}


def best_of(runs: Sequence[Run], column: Column) -> Run:
    """The one with the best mean."""
    return max(runs, key=lambda run: (run.value(column.key) or 0) * column.better)
