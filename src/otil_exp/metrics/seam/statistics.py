"""A seam against its neighbours: how far a profile's value at a boundary stands out of the rows that are none."""

from __future__ import annotations

import numpy as np

MAD_TO_SD = 1.4826
"""Standard deviation of a normal distribution with median absolute deviation 1."""

Z_FLOOR = 0.05
"""Added to the deviation, in levels: on a picture without texture a rounding error is no seam."""

Z_FLOOR_DB = 0.5
"""The same for profiles in dB: about a tenth of the energy."""

MIN_PLACEBOS = 8
"""Rows to compare with, below which their deviation says nothing."""

Z_CAP = 10.0
"""Beyond it a z says no more, and one natural horizon would rule the mean of a set."""

LOG_FLOOR = 0.01
"""Added above and below the line of a log ratio, in levels."""


def placebos(profile: np.ndarray, seam: int, seams: tuple[int, ...], exclude: int, reach: int | None) -> np.ndarray:
    """Values of a profile (H,) at the rows y to compare `seam` with.

    They are defined, more than `exclude` rows from every seam and, with `reach`, at most that many from this one.
    """
    y = np.arange(len(profile))
    wanted = np.isfinite(profile) & (np.abs(y[:, None] - np.array(seams)).min(1) > exclude)
    if reach is not None:
        wanted &= np.abs(y - seam) <= reach
    assert wanted.any(), f"no row to compare row {seam} with"
    found: np.ndarray = profile[wanted]
    return found


def robust_z(value: float, others: np.ndarray, floor: float = Z_FLOOR) -> float:
    """(value - median) / (1.4826 MAD + floor), from -10 to 10: deviations by which a value stands out."""
    median = np.median(others)
    deviation = MAD_TO_SD * np.median(np.abs(others - median))
    return float(np.clip((value - median) / (deviation + floor), -Z_CAP, Z_CAP))


def log2_ratio(value: float, others: np.ndarray) -> float:
    """log2((value + 0.01) / (median + 0.01)), in octaves: 0 as its surroundings, 1 twice as much, -1 half."""
    return float(np.log2((value + LOG_FLOOR) / (np.median(others) + LOG_FLOOR)))
