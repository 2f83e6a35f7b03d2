"""Row profiles worked out by hand, and against polyfit."""

from __future__ import annotations

import numpy as np
import pytest

from otil_exp.metrics.seam.profiles import (
    bands,
    gradient,
    interquartile_mean,
    line_weights,
    sharpness,
    signed_steps,
    steps,
)


def rows(values: list[float], columns: int = 16) -> np.ndarray:
    """A picture (H, columns, 3) whose rows are constant, in levels."""
    return np.broadcast_to(np.array(values, float)[:, None, None], (len(values), columns, 3))


PLAIN_STEP = rows([100] * 20 + [101] * 20)
STRAIGHT = rows([3.0 * y for y in range(40)])
PROFILES = [gradient, steps, sharpness, lambda picture: bands(picture, 4)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100, 0, 2, 1], 1.5),  # the middle two
        ([0, 1, 2, 3, 100], 2.0),  # (.75 * 1 + 2 + .75 * 3) / 2.5
        ([0, 0, 1, 2, 9, 9], 2.5),  # (.5 * 0 + 1 + 2 + .5 * 9) / 3
        ([7], 7),
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(values, float)) == pytest.approx(expected)


def test_interquartile_mean_ignores_a_quarter_of_outliers_on_either_side() -> None:
    values = np.r_[np.full(16, -1e6), np.linspace(-1, 1, 32), np.full(16, 1e9)]
    assert interquartile_mean(values) == pytest.approx(0, abs=1e-9)


def test_a_plain_step_has_its_height_in_every_profile() -> None:
    assert gradient(PLAIN_STEP)[19:22] == pytest.approx([0, 1, 0])
    # r at the step is 1 - 0, beside it 0 - 1/2.
    assert signed_steps(PLAIN_STEP)[18:23, 0] == pytest.approx([0, -0.5, 1, -0.5, 0])
    assert steps(PLAIN_STEP)[18:23] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert bands(PLAIN_STEP, 4)[20] == pytest.approx(1)


def test_a_straight_gradient_is_no_seam() -> None:
    assert np.nanmax(steps(STRAIGHT)) == pytest.approx(0, abs=1e-9)
    assert np.nanmax(bands(STRAIGHT, 4)) == pytest.approx(0, abs=1e-9)
    assert np.nanmax(sharpness(STRAIGHT)) == pytest.approx(0, abs=1e-9)
    assert gradient(STRAIGHT)[1:] == pytest.approx(3)


def test_a_step_on_a_slope_is_measured_without_the_slope() -> None:
    assert steps(STRAIGHT + PLAIN_STEP)[20] == pytest.approx(1)
    assert bands(STRAIGHT + PLAIN_STEP, 4)[20] == pytest.approx(1)


def test_profiles_are_undefined_where_their_rows_leave_the_picture() -> None:
    defined = [np.flatnonzero(np.isfinite(profile(STRAIGHT))) for profile in PROFILES]
    assert [(found.min(), found.max()) for found in defined] == [(1, 39), (2, 38), (3, 37), (4, 36)]


def test_channels_count_by_their_size_whatever_their_sign() -> None:
    """+1 in red, -1 in green, nothing in blue: mean of |.| is 2/3, where the mean would be 0."""
    picture = PLAIN_STEP * np.array([1, -1, 0])
    assert steps(picture)[20] == pytest.approx(2 / 3)
    assert bands(picture, 4)[20] == pytest.approx(2 / 3)


def test_an_object_in_a_quarter_of_the_columns_is_no_step() -> None:
    picture = np.array(rows([100] * 40, columns=64))
    picture[20:, :16] = 200
    assert steps(picture)[20] == 0
    assert bands(picture, 4)[20] == pytest.approx(0, abs=1e-9)
    assert gradient(picture)[20] == pytest.approx(25)


def test_a_line_through_two_rows_by_hand() -> None:
    """t = 1/2, 3/2: the value at 0 is 1.5 times the nearer minus half the further."""
    assert line_weights(2) == pytest.approx([1.5, -0.5])


@pytest.mark.parametrize("width", [2, 5, 16])
def test_bands_are_the_gap_between_two_fitted_lines(width: int) -> None:
    """polyfit on either side of every row of one column of blocks, in float64."""
    picture = np.random.default_rng(width).uniform(0, 255, (50, 8, 3))
    expected = np.full(50, np.nan)
    t = np.arange(width) + 0.5
    for y in range(width, 50 - width + 1):
        means = picture.mean(1)
        below = np.polyfit(t, means[y : y + width], 1)[1]
        above = np.polyfit(t, means[y - width : y][::-1], 1)[1]
        expected[y] = np.abs(below - above).mean()
    np.testing.assert_allclose(bands(picture, width), expected, atol=1e-9)


def test_bands_average_eight_columns_before_the_quartiles() -> None:
    """Four blocks with steps 0, 0, 8 and 8 levels: the mean of the middle two is 4."""
    picture = np.zeros((16, 32, 3))
    picture[8:, 16:] = 8
    assert bands(picture, 4)[8] == pytest.approx(4)
    picture[8:, 16:] = np.tile([0, 16], 8)[:, None]
    assert bands(picture, 4)[8] == pytest.approx(4)


def test_columns_beyond_the_last_block_are_left_out_and_a_narrow_picture_is_one() -> None:
    wide = np.array(rows([0] * 8 + [5] * 8, columns=11))
    wide[8:, 8:] = 255
    assert bands(wide, 4)[8] == pytest.approx(5)
    assert bands(rows([0] * 8 + [5] * 8, columns=3), 4)[8] == pytest.approx(5)


def test_sharpness_of_one_bright_row_by_hand() -> None:
    """c is 1, 2, 1 around the row, and E the mean of four of them."""
    spike = rows([0] * 10 + [1] + [0] * 10)
    assert sharpness(spike)[8:14] == pytest.approx([0.25, 0.75, 1, 1, 0.75, 0.25])


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_see_neither_brightness_nor_left_and_right_and_scale_with_contrast(profile: object) -> None:
    picture = np.random.default_rng(0).uniform(0, 255, (40, 24, 3))
    expected = profile(picture)  # type: ignore[operator]
    np.testing.assert_allclose(profile(picture + 50), expected, atol=1e-9)  # type: ignore[operator]
    np.testing.assert_allclose(profile(picture[:, ::-1]), expected, atol=1e-9)  # type: ignore[operator]
    np.testing.assert_allclose(profile(picture * 2), expected * 2, atol=1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_of_a_picture_upside_down_are_upside_down(profile: object) -> None:
    """The boundary above row y becomes the one above row H - y."""
    picture = np.random.default_rng(0).uniform(0, 255, (40, 24, 3))
    turned = profile(picture[::-1])  # type: ignore[operator]
    np.testing.assert_allclose(turned[1:], profile(picture)[:0:-1], atol=1e-9)  # type: ignore[operator]
