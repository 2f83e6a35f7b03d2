"""A seam against the reference picture: what the boundary has that the single-GPU picture has not.

X picture, R reference (H, W, C), float64 in grey levels 0..255, D = X - R; s the boundary between rows s - 1 and s. A
natural edge at the boundary is in both and cancels. Where content has more detail a method errs more, seam or no seam:
the profiles give the energy ratio and the gain their placebos, rows that are no boundary.
"""

from __future__ import annotations

import numpy as np

from otil_exp.metrics.sizes import PSNR_CAP_DB

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


def gain_profile_db(picture: np.ndarray, reference: np.ndarray, width: int) -> np.ndarray:
    """20 log10(g_below / g_above) of every row (H,), in dB: the change of contrast; NaN where a side is too short.

    g is the slope of X on R in `width` rows: least squares over rows, columns and channels, each channel with its own
    intercept, so that brightness does not enter: g = (cov(X, R) + 0.0025) / (var(R) + 0.0025), at least 0.01.
    """
    x, r = (side - side.mean((0, 1)) for side in (picture, reference))
    mean_x, mean_r, product, square = (_window_means(values, width) for values in (x, r, x * r, r * r))
    covariance, variance = ((product - mean_x * mean_r).mean(1), (square - mean_r**2).mean(1))
    gain = np.maximum((covariance + GAIN_PRIOR) / (variance + GAIN_PRIOR), GAIN_FLOOR)  # of rows y .. y + width - 1
    profile = np.full(len(picture), np.nan)
    profile[width : len(picture) - width + 1] = 20 * np.log10(gain[width:] / gain[:-width])
    return profile


def _window_means(values: np.ndarray, width: int) -> np.ndarray:
    """(H, W, C) -> (H - width + 1, C): means over rows y .. y + width - 1 and all columns."""
    sums = np.cumsum(np.concatenate([np.zeros((1, values.shape[2])), values.mean(1)]), axis=0)
    means: np.ndarray = (sums[width:] - sums[:-width]) / width
    return means


def energy_profile_db(difference: np.ndarray, near: int) -> np.ndarray:
    """10 log10 of the mean D^2 in rows y - near .. y + near - 1, for every row (H,), in dB; NaN where they leave."""
    profile = np.full(len(difference), np.nan)
    energy = _window_means(difference**2, 2 * near).mean(1)
    profile[near : len(difference) - near + 1] = 10 * np.log10(np.maximum(energy, 0) + ENERGY_FLOOR)
    return profile


def near_and_far(rows: np.ndarray, seam: int, seams: tuple[int, ...], near: int, far: int) -> tuple[float, float]:
    """Mean D^2 in the rows s - near .. s + near - 1, and in the rows y with |y - q| > far for all seams q, levels^2.

    rows: (H,), the mean D^2 of every row.
    """
    apart = np.abs(np.arange(len(rows))[:, None] - np.array(seams)).min(1)
    return float(rows[seam - near : seam + near].mean()), float(rows[apart > far].mean())


def energy_ratio_db(near: float, far: float) -> float:
    """10 log10(near / far) of mean D^2, in dB: a fault local to the seam is positive, a step is not seen.

    So is detail at the seam, without any fault of the seam: the z of `energy_profile_db` says how unusual it is.
    """
    return float(10 * np.log10((near + ENERGY_FLOOR) / (far + ENERGY_FLOOR)))


def psnr_db(mse: float) -> float:
    """PSNR of a mean D^2 in levels^2, in dB, at most 100."""
    return float(min(10 * np.log10(255**2 / mse), PSNR_CAP_DB)) if mse > 0 else PSNR_CAP_DB
