"""A seam against the reference picture: what the boundary has that the single-GPU picture has not.

X picture, R reference (H, W, C), float64 in grey levels 0..255, D = X - R; s the boundary between rows s - 1 and s. A
natural edge at the boundary is in both and cancels.
"""

from __future__ import annotations

import numpy as np

from otil_exp.metrics.pairwise import PSNR_CAP_DB

GAIN_FLOOR = 0.01
"""Smallest gain: a side that follows the reference not at all, or backwards, has this one (-40 dB)."""

GAIN_PRIOR = 0.05**2
"""Variance, in levels^2, with gain 1 that is added to each side: on a flat reference there is no contrast to change."""

ENERGY_FLOOR = 0.01**2
"""Added above and below the line of the energy ratio, in levels^2: identical pictures have ratio 1."""


def signed_band_step(difference: np.ndarray, seam: int, width: int) -> np.ndarray:
    """Mean of D over `width` rows below minus `width` rows above, per channel (C,), in levels, signed."""
    below, above = difference[seam : seam + width], difference[seam - width : seam]
    step: np.ndarray = below.mean((0, 1)) - above.mean((0, 1))
    return step


def gain_step_db(picture: np.ndarray, reference: np.ndarray, seam: int, width: int) -> float:
    """20 log10(g_below / g_above), in dB: the change of contrast; g is the slope of X on R in `width` rows.

    Least squares over rows, columns and channels, each channel with its own intercept, so that brightness does not
    enter: g = (cov(X, R) + 0.0025) / (var(R) + 0.0025), at least 0.01.
    """
    below, above = (
        _gain(picture[rows], reference[rows]) for rows in (slice(seam, seam + width), slice(seam - width, seam))
    )
    return float(20 * np.log10(below / above))


def _gain(picture: np.ndarray, reference: np.ndarray) -> float:
    x, r = (side - side.mean((0, 1)) for side in (picture, reference))
    return float(max(((x * r).mean() + GAIN_PRIOR) / ((r * r).mean() + GAIN_PRIOR), GAIN_FLOOR))


def near_and_far(difference: np.ndarray, seam: int, seams: tuple[int, ...], near: int, far: int) -> tuple[float, float]:
    """Mean D^2 in the rows s - near .. s + near - 1, and in the rows y with |y - q| > far for all seams q, levels^2."""
    rows = (difference**2).mean((1, 2))
    apart = np.abs(np.arange(len(rows))[:, None] - np.array(seams)).min(1)
    return float(rows[seam - near : seam + near].mean()), float(rows[apart > far].mean())


def energy_ratio_db(near: float, far: float) -> float:
    """10 log10(near / far) of mean D^2, in dB: a fault that is local to the seam is positive, a step is not seen."""
    return float(10 * np.log10((near + ENERGY_FLOOR) / (far + ENERGY_FLOOR)))


def psnr_db(mse: float) -> float:
    """PSNR of a mean D^2 in levels^2, in dB, at most 100."""
    return float(min(10 * np.log10(255**2 / mse), PSNR_CAP_DB)) if mse > 0 else PSNR_CAP_DB
