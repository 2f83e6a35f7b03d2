"""The difference of two methods over their common prompts, by hand."""

from __future__ import annotations

import pytest

from otil_exp.metrics.differences import paired_difference


def test_prompts_that_differ_much_hide_no_steady_difference() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, error 1 / sqrt(3); the methods' own errors are some 10 dB."""
    first = {"00": 11.0, "01": 32.0, "02": 53.0}
    second = {"00": 10.0, "01": 30.0, "02": 50.0}
    assert paired_difference(first, second) == pytest.approx((2, 3**-0.5, 3))
    assert paired_difference(second, first) == pytest.approx((-2, 3**-0.5, 3))


def test_prompts_that_one_of_them_lacks_are_left_out() -> None:
    assert paired_difference({"00": 1.0, "01": 5.0}, {"01": 3.0, "07": 9.0}) == (2.0, None, 1)
    assert paired_difference({"00": 1.0}, {"01": 3.0}) is None


def test_values_of_several_boundaries_count_as_their_mean() -> None:
    assert paired_difference({"00": [1.0, 3.0], "01": [0.0, 0.0]}, {"00": [1.0, 1.0], "01": [1.0, 1.0]}) == (0, 1, 2)
