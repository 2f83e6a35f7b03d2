"""How far two methods are apart over the same prompts: much finer than the spread of either over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otil_exp.metrics.differences import paired_difference
from otil_exp.report.best import best_of, rivals
from otil_exp.report.collect import Run
from otil_exp.report.columns import Column

FEWEST = 3
"""Prompts below which a standard error of differences says nothing."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One run's score minus another's, prompt by prompt."""

    mean: float
    error: float
    """Standard error of the mean: the differences' deviation over the root of n."""
    n: int

    @property
    def told_apart(self) -> bool:
        """Whether chance leaves so large a mean of so many differences in less than 5 % of cases."""
        return self.mean != 0 and abs(self.mean) >= needed_errors(self.n) * self.error


STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5 % quantiles of Student's t with 1 to 9 degrees of freedom."""

NEEDED_IN_WORDS = "Student's t: 4.3 standard errors of the paired difference at 3 prompts, 2.3 at 10, 2 at 60"
"""`needed_errors`, for the tables and pages that have a mark of it."""


def needed_errors(n: int) -> float:
    """Standard errors that a mean over n values must be away from zero at the 5 % level (Student's t, n >= 2)."""
    freedom = n - 1
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.37 / freedom + 2.82 / freedom**2


def difference(run: Run, other: Run, key: str) -> Difference | None:
    """run minus other over the prompts that both have; None for scores that are not of single pictures, or too few."""
    found = paired_difference(run.per_picture(key), other.per_picture(key))
    if found is None or found.standard_error is None or found.n < FEWEST:
        return None
    return Difference(mean=found.mean, error=found.standard_error, n=found.n)


def too_few(run: Run, other: Run, key: str) -> bool:
    """Whether two runs are compared picture by picture, and share so few prompts that no difference is certain."""
    own, others = run.per_picture(key), other.per_picture(key)
    return bool(own and others) and len(own.keys() & others.keys()) < FEWEST


def against_best(runs: Sequence[Run], column: Column) -> dict[int, Difference | None]:
    """By number, how far runs are from the best that they can be compared with; None for the best itself."""
    found: dict[int, Difference | None] = {}
    comparable = rivals(runs, column) if column.better else {}
    for run in runs:
        among = comparable.get(run.number, [])
        if len(among) < 2:
            continue
        best = best_of(among, column)
        apart = difference(run, best, column.key)
        if run is best or apart is not None:
            found[run.number] = None if run is best else apart
    return found if any(found.values()) else {}
