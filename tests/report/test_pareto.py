"""The front, worked out by hand."""

from __future__ import annotations

from otil_exp.report.pareto import front


def test_the_front_is_what_nothing_beats_in_both() -> None:
    #          dominated by 2  cheapest   on it      on it      dominated by 2
    points = [(3.0, 5.0), (1.0, 9.0), (2.0, 4.0), (5.0, 1.0), (4.0, 4.0)]
    assert front(points) == [1, 2, 3]


def test_of_equal_cost_only_the_better_is_on_the_front() -> None:
    assert front([(1.0, 3.0), (1.0, 2.0), (2.0, 2.0)]) == [1]


def test_equal_points_share_the_front() -> None:
    assert front([(1.0, 1.0), (2.0, 2.0), (1.0, 1.0)]) == [0, 2]


def test_no_points_have_no_front() -> None:
    assert front([]) == []
