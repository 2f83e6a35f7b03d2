"""What a seam has that the reference has not, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otil_exp.metrics.seam.paired import (
    energy_profile_db,
    energy_ratio_db,
    gain_profile_db,
    near_and_far,
    psnr_db,
    signed_band_step,
)


def checkerboard(rows: int = 32) -> np.ndarray:
    """+1 and -1 in turn around 100, (rows, 8, 3): variance 1 in every row."""
    y, x = np.indices((rows, 8))
    return np.repeat((100 + (-1.0) ** (y + x))[..., None], 3, axis=2)


def test_band_step_is_signed_per_channel() -> None:
    difference = np.zeros((8, 4, 3))
    difference[4:] = (1, -2, 0)
    difference[:2] = 50  # out of the band
    assert signed_band_step(difference, 4, 2) == pytest.approx([1, -2, 0])


def test_twice_the_contrast_is_six_decibel() -> None:
    """g = (2 + .0025) / (1 + .0025) below and 1 above."""
    reference = checkerboard()
    picture = reference.copy()
    picture[16:] = 100 + 2 * (reference[16:] - 100)
    expected = 20 * np.log10(2.0025 / 1.0025)
    assert gain_profile_db(picture, reference, 8)[16] == pytest.approx(expected)
    assert gain_profile_db(picture[::-1], reference[::-1], 8)[16] == pytest.approx(-expected)


def test_brightness_is_no_gain() -> None:
    reference = checkerboard()
    picture = reference.copy()
    picture[16:] += (7, -3, 0)
    assert gain_profile_db(picture, reference, 8)[16] == pytest.approx(0, abs=1e-9)


def test_a_side_without_anything_of_the_reference_has_the_smallest_gain() -> None:
    """g = -1 counts as .01: -40 dB."""
    reference = checkerboard()
    picture = reference.copy()
    picture[16:] = 200 - reference[16:]
    assert gain_profile_db(picture, reference, 8)[16] == pytest.approx(-40)


def test_a_flat_reference_has_no_contrast_to_change() -> None:
    flat = np.full((32, 8, 3), 100.0)
    assert gain_profile_db(flat + 1, flat, 8)[16] == 0


def test_near_rows_touch_the_seam_and_far_ones_no_seam() -> None:
    """Rows 6..9 are near 8; rows more than 3 from 8 and 16 of 24 are 0..4, 12 and 20..23."""
    difference = np.zeros((24, 4, 3))
    difference[6:10] = 2
    difference[[0, 12, 23]] = 1
    assert near_and_far((difference**2).mean((1, 2)), 8, (8, 16), near=2, far=3) == pytest.approx((4, 3 / 10))


def test_energy_ratio_by_hand() -> None:
    assert energy_ratio_db(0, 0) == 0
    assert energy_ratio_db(1, 0) == pytest.approx(10 * np.log10(10001))
    assert energy_ratio_db(4, 4) == 0


def test_psnr_of_one_level_and_of_none() -> None:
    assert psnr_db(1) == pytest.approx(48.1308036)
    assert psnr_db(0) == 100


def test_energy_of_every_row_by_hand() -> None:
    """Rows y - 2 .. y + 1: one row of 4 among them is a mean of 1; windows that leave the picture have none."""
    difference = np.zeros((10, 4, 3))
    difference[5] = 2
    profile = energy_profile_db(difference, near=2)
    assert np.isnan(profile[[0, 1, 9]]).all()
    assert profile[4:8] == pytest.approx([10 * np.log10(1.0001)] * 4)
    assert profile[[2, 3, 8]] == pytest.approx([-40] * 3)


def test_gain_of_every_row_is_that_of_its_two_sides() -> None:
    """Against a fit of X on R in each side, as least squares has it."""
    random = np.random.default_rng(0)
    reference = random.normal(100, 5, (24, 8, 3))
    picture = reference * random.uniform(0.5, 1.5, (24, 1, 1)) + random.normal(size=reference.shape)

    def gain(rows: slice) -> float:
        x, r = (side[rows] - side[rows].mean((0, 1)) for side in (picture, reference))
        return float(((x * r).mean() + 0.0025) / ((r * r).mean() + 0.0025))

    profile = gain_profile_db(picture, reference, 6)
    expected = [20 * np.log10(gain(slice(y, y + 6)) / gain(slice(y - 6, y))) for y in range(6, 19)]
    assert profile[6:19] == pytest.approx(expected, abs=1e-9)
    assert np.isnan(profile[:6]).all()
    assert np.isnan(profile[19:]).all()
