"""How far a picture is from the reference picture of the same prompt and seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from otil_exp.metrics.repeatable import repeatable

PSNR_CAP_DB = 100.0
"""Largest PSNR that enters means, in dB; that of identical pictures is infinite."""

ROUNDING = 1e-3
"""Values may leave [0, 1] by this much, about a quarter of a grey level."""

SSIM_WINDOW = 11
"""Side, in pixels, of SSIM's Gaussian window (standard deviation 1.5)."""


def read_picture(path: Path) -> np.ndarray:
    """An RGB picture as (H, W, 3) float64 in [0, 1]."""
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 255


def psnr(picture: np.ndarray, reference: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, 10 log10(1 / mean squared error); infinite for identical pictures.

    Both (H, W, 3) float in [0, 1]. Raises ValueError for anything else, and when the shapes differ.
    """
    check_pair(picture, reference)
    mse = float(np.mean(np.subtract(picture, reference, dtype=np.float64) ** 2))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def ssim(picture: np.ndarray, reference: np.ndarray) -> float:
    """Structural similarity, at most 1 (identical): Wang et al. 2004, mean over all pixels and the three channels.

    Both (H, W, 3) float in [0, 1]. Gaussian window of 11 x 11, biased variances, edges mirrored (torchmetrics). In
    float32: within 1e-6 of float64, on bright and nearly flat pictures within 1e-4, and many times faster.
    Raises ValueError for anything else, when the shapes differ, and when the window does not fit.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    check_pair(picture, reference)
    height, width = picture.shape[:2]
    if min(height, width) < SSIM_WINDOW:
        raise ValueError(f"a picture of {height} x {width} has no SSIM: it needs {SSIM_WINDOW} pixels a side")
    ours, theirs = (torch.from_numpy(p.astype(np.float32)).permute(2, 0, 1)[None] for p in (picture, reference))
    with repeatable():
        score = structural_similarity_index_measure(ours, theirs, data_range=1.0)
    assert isinstance(score, torch.Tensor)
    return float(score)


def check_pair(picture: np.ndarray, reference: np.ndarray) -> None:
    """Raise ValueError unless both are pictures, and of one shape."""
    if picture.shape != reference.shape:
        raise ValueError(
            f"pictures of {picture.shape} and {reference.shape} cannot be compared: make them the same size"
        )
    check_picture(picture)
    check_picture(reference)


def check_picture(picture: np.ndarray) -> None:
    """Raise ValueError unless it is (H, W, 3) float in [0, 1]: integers wrap around, and 0..255 gives other numbers."""
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype.kind != "f":
        raise ValueError(f"a picture is (H, W, 3) float in [0, 1], this is {picture.dtype} {picture.shape}")
    low, high = float(picture.min()), float(picture.max())
    if not (low > -ROUNDING and high < 1 + ROUNDING):
        raise ValueError(f"a picture has values in [0, 1], this one from {low:g} to {high:g}")
