"""A seam profile shows a step where the picture has one and the reference has not."""

from __future__ import annotations

import numpy as np

from otil_exp.report.profile import profiles


def coordinates(path: str) -> list[tuple[int, int]]:
    pairs = (point.split() for point in path.removeprefix("M").split("L"))
    return [(int(x), int(y)) for x, y in pairs]


def test_a_step_in_one_channel_is_a_step_in_its_curve_alone() -> None:
    difference = np.zeros((4, 6, 3))
    difference[2:, :, 0] = -8
    [profile] = profiles(difference)
    assert profile.full_scale == 8
    curves = dict(profile.paths)
    assert coordinates(curves["red"]) == [(50, 0), (50, 1), (0, 2), (0, 3)]
    assert coordinates(curves["green"]) == [(50, 0), (50, 1), (50, 2), (50, 3)]


def test_columns_have_a_profile_of_their_own() -> None:
    difference = np.zeros((4, 6, 3))
    difference[:, 3:] = 4
    rows, columns = profiles(difference, along_columns=True)
    assert (rows.kind, rows.points, columns.kind, columns.points) == ("row", 4, "column", 6)
    assert [x for x, _ in coordinates(columns.paths[0][1])] == [50, 50, 50, 100, 100, 100]


def test_a_rounding_difference_does_not_fill_the_scale() -> None:
    [profile] = profiles(np.full((4, 4, 3), 0.02))
    assert profile.full_scale == 1
    assert coordinates(profile.paths[0][1])[0] == (51, 0)


def test_a_tall_picture_has_at_most_128_points() -> None:
    [profile] = profiles(np.zeros((1024, 8, 3)))
    assert profile.points == 128
