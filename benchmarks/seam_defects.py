"""Photos without seams, faults planted at a row of them, and how well a statistic tells the two apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates
from skimage import data

from otil_exp.metrics.seam import Boundaries, seam_metrics

PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "camera")
"""Photos of scikit-image that its wheel ships, CC0 or in the public domain."""

SIDE = 256
SEAM = SIDE // 2
SET = 16
"""Pictures of a set whose mean is compared."""

Values = dict[str, np.ndarray]
"""Metric -> one value a picture."""

Defect = Callable[[np.ndarray], np.ndarray]
"""(H, W, 3) float in [0, 1] -> the same with a fault between rows SEAM - 1 and SEAM."""


def photos() -> list[np.ndarray]:
    """Each photo as it is and on its side, (H, W, 3) float64 in [0, 1]."""
    upright = [np.atleast_3d(getattr(data, name)()) / 255 for name in PHOTOS]
    upright = [np.broadcast_to(photo, (*photo.shape[:2], 3)) for photo in upright]
    return upright + [photo.transpose(1, 0, 2) for photo in upright]


def crops(per_photo: int, seed: int = 0) -> list[np.ndarray]:
    """`per_photo` random squares of SIDE pixels from each of the ten."""
    rng = np.random.default_rng(seed)
    found = []
    for photo in photos():
        for _ in range(per_photo):
            y, x = (rng.integers(size - SIDE + 1) for size in photo.shape[:2])
            found.append(photo[y : y + SIDE, x : x + SIDE])
    return found


def horizons(per_photo: int) -> list[np.ndarray]:
    """`per_photo` squares of each of the ten whose strongest natural edge between bands of 8 rows lies at SEAM."""
    found = []
    for photo in photos():
        for x in np.linspace(0, photo.shape[1] - SIDE, per_photo).astype(int):
            column = photo[:, x : x + SIDE]
            rows = column.mean((1, 2))
            places = range(SEAM, len(rows) - SEAM + 1)
            edge = max(places, key=lambda y: abs(rows[y : y + 8].mean() - rows[y - 8 : y].mean()))
            found.append(column[edge - SEAM : edge + SEAM])
    return found


def eight_bit(picture: np.ndarray) -> np.ndarray:
    return np.clip(np.round(picture * 255), 0, 255) / 255


def step(levels: float) -> Defect:
    """The lower half brighter."""
    return lambda picture: picture + (np.arange(len(picture)) >= SEAM)[:, None, None] * levels / 255


def ramp(levels: float, rows: int = 16) -> Defect:
    """The lower half brighter, reached over `rows` rows around the seam: a step in the latent, decoded."""

    def apply(picture: np.ndarray) -> np.ndarray:
        reached = np.clip((np.arange(len(picture)) + 0.5 - SEAM) / rows + 0.5, 0, 1)
        return picture + reached[:, None, None] * levels / 255

    return apply


def contrast(gain: float) -> Defect:
    """The lower half with more contrast around mid-grey."""
    return lambda picture: np.concatenate([picture[:SEAM], 0.5 + gain * (picture[SEAM:] - 0.5)])


def blur(sigma: float = 1.0, rows: int = 4) -> Defect:
    """`rows` rows on either side smoothed across the seam."""

    def apply(picture: np.ndarray) -> np.ndarray:
        smooth, near = gaussian_filter(picture, (sigma, 0, 0)), slice(SEAM - rows, SEAM + rows)
        return np.concatenate([picture[: near.start], smooth[near], picture[near.stop :]])

    return apply


def drop_row(picture: np.ndarray) -> np.ndarray:
    """The first row of the lower half is missing."""
    return np.concatenate([picture[:SEAM], picture[SEAM + 1 :], picture[-1:]])


def shift(pixels: int) -> Defect:
    """The lower half moved sideways."""
    return lambda picture: np.concatenate([picture[:SEAM], np.roll(picture[SEAM:], pixels, axis=1)])


def drift(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A smooth deviation of 2 levels without a seam, as another method's picture has it."""
    field = gaussian_filter(rng.standard_normal(picture.shape), (16, 16, 0))
    return picture + field / field.std() * 2 / 255


def warp(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Edges moved smoothly by about 0.3 pixels, without a seam."""
    moves = [gaussian_filter(rng.standard_normal(picture.shape[:2]), 16) for _ in range(2)]
    grid = np.indices(picture.shape[:2]) + np.array([0.3 * move / move.std() for move in moves])
    channels = [map_coordinates(picture[..., c], grid, order=1, mode="nearest") for c in range(3)]
    return np.stack(channels, axis=-1)


def flat_field(rng: np.random.Generator, noise: float = 1.0) -> np.ndarray:
    """A grey wall with a faint gradient and a dark vase across the seam; noise in levels."""
    y, x = np.indices((SIDE, SIDE)) / SIDE
    wall = 128 + 6 * y + 3 * x - 60 * (((x - 0.5) / 0.12) ** 2 + ((y - 0.55) / 0.2) ** 2 < 1)
    return (wall[..., None] + rng.normal(0, noise, (SIDE, SIDE, 3))) / 255


def roc_auc(negatives: np.ndarray, positives: np.ndarray) -> float:
    """Chance that a positive scores above a negative, ties counted half (Mann-Whitney)."""
    differences = np.sign(np.asarray(positives)[:, None] - np.asarray(negatives)[None, :])
    return float(0.5 + differences.mean() / 2)


def set_means(values: np.ndarray, rng: np.random.Generator, sets: int = 300) -> np.ndarray:
    """Means of random sets of SET different pictures."""
    return np.array([rng.choice(values, SET, replace=False).mean() for _ in range(sets)])


def measured(pictures: list[np.ndarray], references: list[np.ndarray] | None = None) -> Values:
    """Metrics of 8-bit pictures at SEAM, against 8-bit references where given."""
    others = [None] * len(pictures) if references is None else [eight_bit(reference) for reference in references]
    found = [
        seam_metrics(eight_bit(picture), Boundaries(rows=(SEAM,)), other)
        for picture, other in zip(pictures, others, strict=True)
    ]
    return {name: np.array([values[name][0] for values in found]) for name in found[0]}
