"""Row profiles: a statistic T[y] of the boundary between rows y - 1 and y, for all y at once.

Pictures are X (H, W, C), float64 in grey levels 0..255; a profile is (H,), NaN where its rows leave the picture.
Computing every row gives a seam its neighbours as placebos. d[y] = X[y] - X[y-1].
"""

from __future__ import annotations

import numpy as np

BLOCK = 8
"""Columns that are averaged before a line is fitted, in pixels."""


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis of what lies between the quartiles: half of the values, the ends counted in part.

    Up to a quarter of outliers on either side do not move it, and unlike the median it is not quantised.
    """
    n = values.shape[-1]
    weights = np.diff(np.clip(np.arange(n + 1), n / 4, 3 * n / 4)) / (n / 2)
    middle = slice(n // 4, n - n // 4)
    # Not a matrix product: BLAS sums in another order on another number of threads.
    mean: np.ndarray = (np.sort(values, axis=-1)[..., middle] * weights[middle]).sum(-1)
    return mean


def gradient(picture: np.ndarray) -> np.ndarray:
    """G[y] = mean over x, c of |d|, in levels a row."""
    profile = _undefined(picture)
    profile[1:] = np.abs(np.diff(picture, axis=0)).mean((1, 2))
    return profile


def signed_steps(picture: np.ndarray) -> np.ndarray:
    """IQM over x of r[y] = d[y] - (d[y-1] + d[y+1]) / 2: a jump beyond the slope around it, (H, C), in levels."""
    d = np.diff(picture, axis=0)
    r = d[1:-1] - (d[:-2] + d[2:]) / 2
    profile = np.full((len(picture), picture.shape[2]), np.nan)
    profile[2:-1] = interquartile_mean(np.moveaxis(r, 2, 1))
    return profile


def steps(picture: np.ndarray) -> np.ndarray:
    """S[y] = mean over c of |signed_steps|, in levels: a jump of one row that most columns share."""
    profile: np.ndarray = np.abs(signed_steps(picture)).mean(1)
    return profile


def line_weights(width: int) -> np.ndarray:
    """a_k: extrapolates the straight line through `width` >= 2 rows at distances k + 1/2 to distance 0.

    a_k = 1/w - tbar (t_k - tbar) / sum (t - tbar)^2 with t_k = k + 1/2: the intercept of a least-squares fit.
    """
    t = np.arange(width) + 0.5
    centred = t - t.mean()
    weights: np.ndarray = 1 / width - t.mean() * centred / (centred**2).sum()
    return weights


def bands(picture: np.ndarray, width: int) -> np.ndarray:
    """B[y] = mean over c of |IQM over blocks of J[y]|, in levels: regression discontinuity over `width` rows a side.

    J[y] = sum_k a_k (P[y+k] - P[y-1-k]), P the means of blocks of 8 columns (columns beyond the last whole block are
    left out; a narrower picture is one block), a = line_weights. Natural slopes cancel, a step or a soft ramp stays.
    """
    height, columns, channels = picture.shape
    block = min(BLOCK, columns)
    whole = picture[:, : columns // block * block]
    blocks = whole.reshape(height, -1, block, channels).mean(2)
    jump = np.zeros((height - 2 * width + 1, *blocks.shape[1:]))
    for k, weight in enumerate(line_weights(width)):
        below, above = width + k, width - 1 - k
        jump += weight * (blocks[below : below + len(jump)] - blocks[above : above + len(jump)])
    profile = _undefined(picture)
    profile[width : height - width + 1] = np.abs(interquartile_mean(np.moveaxis(jump, 2, 1))).mean(1)
    return profile


def sharpness(picture: np.ndarray) -> np.ndarray:
    """E[y] = mean of c[y-2..y+1], c[y] = mean over x, c of |X[y+1] - 2 X[y] + X[y-1]|, in levels."""
    curvature = np.abs(np.diff(picture, 2, axis=0)).mean((1, 2))
    profile = _undefined(picture)
    profile[3:-2] = np.lib.stride_tricks.sliding_window_view(curvature, 4).mean(1)
    return profile


def _undefined(picture: np.ndarray) -> np.ndarray:
    return np.full(len(picture), np.nan)
