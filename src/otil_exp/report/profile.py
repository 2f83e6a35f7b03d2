"""Seam profiles: what differs from the reference, row by row, so that a step at a boundary is seen as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

POINTS = 128
"""Most points of a curve; neighbouring rows are averaged beyond, never across a boundary of slices of whole groups."""

LEAST_LEVELS = 1.0
"""Smallest full scale, in grey levels, so that rounding does not look like a difference."""

CHANNELS = ("red", "green", "blue")


@dataclass(frozen=True)
class Profile:
    """Signed mean difference to the reference along one axis, as SVG paths in a box of 100 x points."""

    kind: str
    """row: one value a row; column: one value a column."""
    paths: list[tuple[str, str]]
    """(channel, path): x from 0 (-full_scale) to 100 (+full_scale), y the place."""
    points: int
    full_scale: float
    """Grey levels."""


def profiles(difference: np.ndarray, along_columns: bool = False) -> list[Profile]:
    """The profile over rows of a picture minus its reference (H, W, 3) in grey levels; over columns too if asked."""
    found = [_profile("row", _mean("hwc->hc", difference))]
    return [*found, _profile("column", _mean("hwc->wc", difference))] if along_columns else found


def _mean(kept: str, difference: np.ndarray) -> np.ndarray:
    """(length, 3): sums of whole numbers, exact in float32 over up to 65,000 pixels and three times as fast there."""
    sums: np.ndarray = np.einsum(kept, difference.astype(np.float32)).astype(np.float64)
    return sums / (difference.shape[0] * difference.shape[1] / len(sums))


def _profile(kind: str, values: np.ndarray) -> Profile:
    """values: (length, 3) grey levels."""
    group = -(-len(values) // POINTS)
    values = values[: len(values) // group * group].reshape(-1, group, 3).mean(1)
    full_scale = max(float(np.abs(values).max()), LEAST_LEVELS)
    across = np.rint(50 + 50 * values / full_scale).astype(int)
    paths = [(name, _path(across[:, channel])) for channel, name in enumerate(CHANNELS)]
    return Profile(kind, paths, len(values), full_scale)


def _path(across: np.ndarray) -> str:
    return "M" + "L".join(f"{x} {y}" for y, x in enumerate(across))
