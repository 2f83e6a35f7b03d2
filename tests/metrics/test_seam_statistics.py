"""Placebos, z and log ratios by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otil_exp.metrics.seam.statistics import log2_ratio, placebos, robust_z

PROFILE = np.array([np.nan, *range(1, 19), np.nan])


def test_placebos_are_near_the_seam_but_not_at_it() -> None:
    assert list(placebos(PROFILE, 8, (8,), exclude=1, reach=3)) == [5, 6, 10, 11]


def test_placebos_keep_away_from_every_seam() -> None:
    assert list(placebos(PROFILE, 8, (8, 12), exclude=1, reach=4)) == [4, 5, 6, 10]


def test_placebos_without_reach_are_all_defined_rows() -> None:
    assert list(placebos(PROFILE, 8, (8,), exclude=6, reach=None)) == [1, *range(15, 19)]


def test_z_by_hand() -> None:
    """Median 3, deviations 2 1 0 1 7, so MAD 1: z = 2 / (1.4826 + .05)."""
    assert robust_z(5, np.array([1.0, 2, 3, 4, 10])) == pytest.approx(2 / 1.5326)


def test_z_of_a_rounding_error_on_a_flat_picture_is_small() -> None:
    assert robust_z(0.001, np.zeros(9)) == pytest.approx(0.02)


def test_z_has_an_end_lest_one_picture_rule_a_set() -> None:
    assert robust_z(1000, np.zeros(9)) == 10
    assert robust_z(-1000, np.zeros(9)) == -10


def test_log_ratio_by_hand() -> None:
    """log2(.04 / .02) = 1, and log2(.01 / .02) = -1 where the seam has nothing."""
    assert log2_ratio(0.03, np.array([0.01, 0.01, 7])) == pytest.approx(1)
    assert log2_ratio(0, np.array([0.01, 0.01, 7])) == pytest.approx(-1)
