"""How far a picture is from the reference picture of the same prompt and seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image


def read_picture(path: Path) -> np.ndarray:
    """An RGB picture as (H, W, 3) float64 in [0, 1]."""
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 255


def psnr(picture: np.ndarray, reference: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, 10 log10(1 / mean squared error); infinite for identical pictures.

    Both (H, W, 3) float in [0, 1] (integers would wrap around). Raises ValueError when the shapes differ.
    """
    if picture.shape != reference.shape:
        raise ValueError(
            f"pictures of {picture.shape} and {reference.shape} cannot be compared: make them the same size"
        )
    assert picture.dtype.kind == "f", "pictures are floats in [0, 1]"
    mse = float(np.mean((picture - reference) ** 2))
    return math.inf if mse == 0 else -10 * math.log10(mse)
