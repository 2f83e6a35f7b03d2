"""Pairwise scores against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from otil_exp.metrics.pairwise import psnr, read_picture


def test_one_grey_level_everywhere_is_48_13_db() -> None:
    """MSE = (1/255)^2, so PSNR = 20 log10(255) = 48.1308 dB."""
    reference = np.full((4, 4, 3), 100 / 255)
    assert psnr(reference + 1 / 255, reference) == pytest.approx(48.1308036, abs=1e-6)


def test_dark_against_bright_does_not_wrap_around() -> None:
    """0 against 255 is the largest error there is: 0 dB (in uint8 arithmetic it would be 1, 48 dB)."""
    assert psnr(np.zeros((2, 2, 3)), np.ones((2, 2, 3))) == pytest.approx(0)


def test_identical_pictures_are_infinitely_close() -> None:
    assert psnr(np.full((2, 2, 3), 0.5), np.full((2, 2, 3), 0.5)) == math.inf


def test_pictures_of_different_size_are_refused() -> None:
    with pytest.raises(ValueError, match="same size"):
        psnr(np.zeros((2, 2, 3)), np.zeros((2, 4, 3)))


def test_a_picture_is_read_as_floats(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 2), (255, 51, 0, 128)).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    assert picture.shape == (2, 3, 3)
    assert picture[1, 2] == pytest.approx([1, 0.2, 0])
