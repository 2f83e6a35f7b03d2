"""Where a method's slices meet."""

from __future__ import annotations

import pytest

from otil_exp.metrics.seam import Boundaries, boundaries


def test_four_slices_of_1024_meet_at_three_rows() -> None:
    assert boundaries(1024, 4) == [256, 512, 768]


def test_one_slice_meets_nobody() -> None:
    assert boundaries(1024, 1) == []


def test_slices_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="100 pixels do not divide over 3 slices"):
        boundaries(100, 3)


def test_labels_are_rows_then_columns() -> None:
    assert Boundaries(rows=(32,), columns=(48,)).labels == ["row 32", "column 48"]
