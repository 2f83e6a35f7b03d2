"""How far a picture is from the reference picture of the same prompt and seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image

PSNR_CAP_DB = 100.0
"""PSNR of identical pictures, which is infinite, enters means as this."""

SSIM_WINDOW = 11
"""Side, in pixels, of SSIM's Gaussian window (standard deviation 1.5)."""


def read_picture(path: Path) -> np.ndarray:
    """An RGB picture as (H, W, 3) float64 in [0, 1]."""
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 255


def psnr(picture: np.ndarray, reference: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, 10 log10(1 / mean squared error); infinite for identical pictures.

    Both (H, W, 3) float in [0, 1] (integers would wrap around). Raises ValueError when the shapes differ.
    """
    check_pair(picture, reference)
    mse = float(np.mean((picture - reference) ** 2))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def ssim(picture: np.ndarray, reference: np.ndarray) -> float:
    """Structural similarity, at most 1 (identical): Wang et al. 2004, mean over all pixels and the three channels.

    Both (H, W, 3) float in [0, 1]. Gaussian window of 11 x 11, biased variances, edges mirrored (torchmetrics). In
    float32, which is within 1e-5 of float64 and many times faster. Raises ValueError when the shapes differ or the
    picture is smaller than the window.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure

    check_pair(picture, reference)
    height, width = picture.shape[:2]
    if min(height, width) < SSIM_WINDOW:
        raise ValueError(f"a picture of {height} x {width} has no SSIM: it needs {SSIM_WINDOW} pixels a side")
    ours, theirs = (torch.from_numpy(p.astype(np.float32)).permute(2, 0, 1)[None] for p in (picture, reference))
    score = structural_similarity_index_measure(ours, theirs, data_range=1.0)
    assert isinstance(score, torch.Tensor)
    return float(score)


def check_pair(picture: np.ndarray, reference: np.ndarray) -> None:
    """Two float pictures of one shape, or ValueError; integers are an error of ours."""
    if picture.shape != reference.shape:
        raise ValueError(
            f"pictures of {picture.shape} and {reference.shape} cannot be compared: make them the same size"
        )
    assert picture.dtype.kind == reference.dtype.kind == "f", "pictures are floats in [0, 1]"
