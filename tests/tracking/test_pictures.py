"""Marks, differences and profiles, on pictures made by hand."""

from __future__ import annotations

import numpy as np
from PIL import Image

from otil_exp.metrics.seam import Boundaries
from otil_exp.tracking.pictures import COLOUR, difference, marked, seam_profiles


def grey(level: int, height: int = 64, width: int = 48) -> Image.Image:
    return Image.fromarray(np.full((height, width, 3), level, np.uint8))


def test_dashes_stand_on_the_last_row_of_a_slice_and_leave_most_of_it_visible() -> None:
    drawn = np.asarray(marked(grey(100), Boundaries(rows=(32,))))
    coloured = (drawn == COLOUR).all(2)
    assert {int(y) for y in np.nonzero(coloured)[0]} == {31}
    assert coloured[31].sum() == 3 * 4  # every 16 of 48 columns
    columns = (np.asarray(marked(grey(100), Boundaries(columns=(24,)))) == COLOUR).all(2)
    assert {int(x) for x in np.nonzero(columns)[1]} == {23}


def test_a_difference_is_absolute_and_four_times_as_strong() -> None:
    assert np.asarray(difference(grey(100), grey(110))).max() == 40
    assert np.asarray(difference(grey(110), grey(100))).min() == 40
    assert np.asarray(difference(grey(0), grey(200))).max() == 255


def test_a_profile_peaks_where_the_picture_steps() -> None:
    stepped = np.asarray(grey(100)).copy()
    stepped[32:] += 10
    profiles = seam_profiles(Image.fromarray(stepped), grey(100), columns=False)
    assert set(profiles) == {"picture", "reference", "difference"}
    assert profiles["difference"][0] is None
    assert int(np.argmax([value or 0 for value in profiles["difference"]])) == 32
    assert profiles["difference"][32] == 10
    turned = seam_profiles(Image.fromarray(stepped.transpose(1, 0, 2)), None, columns=True)
    assert turned["picture"] == profiles["picture"]
