"""How far a picture is from the reference picture of the same prompt and seed."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from otil_exp.metrics.any_picture import BROKEN
from otil_exp.metrics.repeatable import repeatable
from otil_exp.metrics.sizes import SSIM_WINDOW

ROUNDING = 1e-3
"""Values may leave [0, 1] by this much, about a quarter of a grey level."""

SSIM_DEVIATION = 1.5
"""Standard deviation, in pixels, of SSIM's Gaussian window."""

SSIM_C1, SSIM_C2 = 0.01**2, 0.03**2
"""What Wang et al. add so that black and flat places have a similarity, for values in [0, 1]."""

TILE = 32
"""Places whose windows are computed in one matrix product."""


def read_picture(path: Path) -> np.ndarray:
    """An RGB picture of a run as (H, W, 3) float64 in [0, 1]. Raises ValueError, naming a file that is broken."""
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"), dtype=np.float64) / 255
    except BROKEN as error:
        raise ValueError(
            f"{path} cannot be read ({error}): delete it, and the command that made it makes it again"
        ) from error


def psnr(picture: np.ndarray, reference: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, 10 log10(1 / mean squared error); infinite for identical pictures.

    Both (H, W, 3) float in [0, 1]. Raises ValueError for anything else, and when the shapes differ.
    """
    check_pair(picture, reference)
    mse = float(np.mean(np.subtract(picture, reference, dtype=np.float64) ** 2))
    return math.inf if mse == 0 else -10 * math.log10(mse)


def ssim(picture: np.ndarray, reference: np.ndarray) -> float:
    """Structural similarity: Wang et al. 2004, mean over all pixels and the three channels; identical: exactly 1.

    Both (H, W, 3) float in [0, 1]. Gaussian window of 11 x 11 pixels, biased variances, edges mirrored, float64: in
    float32 the variance of a bright and nearly flat place is lost beside the square of its mean.
    Raises ValueError for anything else, when the shapes differ, and when the window does not fit.
    """
    check_pair(picture, reference)
    height, width = picture.shape[:2]
    if min(height, width) < SSIM_WINDOW:
        raise ValueError(f"a picture of {height} x {width} has no SSIM: it needs {SSIM_WINDOW} pixels a side")
    with repeatable():
        ours, theirs = (_mirrored(p) for p in (picture, reference))
        channels = [_structure(x, y)[:height, :width].mean() for x, y in zip(ours, theirs, strict=True)]
    return float(torch.stack(channels).mean())


def _mirrored(picture: np.ndarray) -> Tensor:
    """(H, W, 3) -> (3, H' + 10, W' + 10) float64, mirrored at the edges; zeros fill the last tiles up."""
    reach = SSIM_WINDOW // 2
    channels = torch.from_numpy(picture.astype(np.float64)).permute(2, 0, 1)
    below, right = (-length % TILE for length in channels.shape[1:])
    return pad(pad(channels, (reach,) * 4, mode="reflect"), (0, right, 0, below)).contiguous()


def _structure(x: Tensor, y: Tensor) -> Tensor:
    """SSIM of every pixel (Wang et al., Eq. 13) of two mirrored channels (H + 10, W + 10): (H, W).

    Only the sum of the variances enters, so that equal channels give the same number above and below the line.
    """
    mean_x, mean_y, squares, product = (_windowed(values) for values in (x, y, x * x + y * y, x * y))
    means, mean_squares = mean_x * mean_y, mean_x * mean_x + mean_y * mean_y
    above = (2 * means + SSIM_C1) * (2 * (product - means) + SSIM_C2)
    return above / ((mean_squares + SSIM_C1) * (squares - mean_squares + SSIM_C2))


def _windowed(values: Tensor) -> Tensor:
    """Gaussian mean around every place: (H + 10, W + 10) -> (H, W), H and W whole tiles.

    One direction after the other, as products of tiles with the banded matrix that the window makes: convolutions in
    float64 are ten times slower.
    """
    band, wide = _band(), TILE + SSIM_WINDOW - 1
    tops = range(0, len(values) - wide + 1, TILE)
    rows = torch.cat([band @ values[top : top + wide] for top in tops])
    return (rows.unfold(1, wide, TILE).reshape(-1, wide) @ band.T).view(len(rows), -1)


@cache
def _band() -> Tensor:
    """(tile, tile + 10): row i weighs places i .. i + 10 by a Gaussian of deviation 1.5, their sum 1."""
    places = torch.arange(SSIM_WINDOW, dtype=torch.float64) - SSIM_WINDOW // 2
    window = torch.exp(-places.square() / (2 * SSIM_DEVIATION**2))
    band = torch.zeros(TILE, TILE + SSIM_WINDOW - 1, dtype=torch.float64)
    for i in range(TILE):
        band[i, i : i + SSIM_WINDOW] = window / window.sum()
    return band


def check_pair(picture: np.ndarray, reference: np.ndarray) -> None:
    """Raise ValueError unless both are pictures, and of one shape."""
    if picture.shape != reference.shape:
        raise ValueError(
            f"pictures of {picture.shape} and {reference.shape} cannot be compared: make them the same size"
        )
    check_picture(picture)
    check_picture(reference)


def check_picture(picture: np.ndarray | Tensor) -> None:
    """Raise ValueError unless it is an array (H, W, 3) or a tensor (3, H, W) of floats in [0, 1].

    Integers would wrap around, and a scale could be applied twice or never.
    """
    form, channels = ("(3, H, W)", 0) if isinstance(picture, Tensor) else ("(H, W, 3)", 2)
    if picture.ndim != 3 or picture.shape[channels] != 3:
        raise ValueError(f"a picture of shape {tuple(picture.shape)}: pass {form}")
    if not (picture.is_floating_point() if isinstance(picture, Tensor) else picture.dtype.kind == "f"):
        raise ValueError(f"a picture of {picture.dtype}: pass floats in [0, 1], 8-bit values divided by 255")
    low, high = float(picture.min()), float(picture.max())
    if not (low > -ROUNDING and high < 1 + ROUNDING):
        raise ValueError(f"a picture with values from {low:g} to {high:g}: pass floats in [0, 1]")
