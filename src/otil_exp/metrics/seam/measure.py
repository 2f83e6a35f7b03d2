"""All seam metrics of a picture."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from otil_exp.metrics.pairwise import check_pair, check_picture
from otil_exp.metrics.seam.boundaries import MIN_SLICE, Boundaries
from otil_exp.metrics.seam.paired import (
    energy_profile_db,
    energy_ratio_db,
    gain_profile_db,
    near_and_far,
    psnr_db,
    signed_band_step,
)
from otil_exp.metrics.seam.profiles import bands, gradient, sharpness, steps
from otil_exp.metrics.seam.statistics import MIN_PLACEBOS, Z_FLOOR_DB, log2_ratio, placebos, robust_z

BAND = 16
"""Rows a side of a band, in pixels: two rows of the latent, about as far as a decoded seam reaches."""

SMALL, SMALL_BAND = 128, 8
"""A picture of at most 128 pixels has bands of 8."""


@dataclass(frozen=True)
class Distances:
    """How far around a seam the statistics look, in rows; at most a quarter of the thinnest slice."""

    band: int
    """Rows a side of a band, and rows around every seam that are no placebo of one."""
    step_apart: int
    """Rows around every seam that are no placebo of a step."""
    sharp_apart: int
    near: int
    """Rows a side that belong to a seam; half as many at most."""
    far: int
    """Rows further than this from every seam belong to none."""

    @classmethod
    def of(cls, length: int, seams: tuple[int, ...]) -> Distances:
        """For seams in a picture of `length` rows. Raises ValueError for slices of less than 8 rows."""
        thinnest = int(np.diff([0, *seams, length]).min())
        if thinnest < MIN_SLICE:
            raise ValueError(
                f"seams at {list(seams)} of {length} pixels: slices must have at least {MIN_SLICE} pixels, in order"
            )
        quarter = thinnest // 4
        return cls(
            band=min(SMALL_BAND if length <= SMALL else BAND, quarter),
            step_apart=min(3, quarter),
            sharp_apart=min(4, quarter),
            near=min(8, thinnest // 8),
            far=min(32, quarter),
        )


def seam_metrics(
    picture: np.ndarray, boundaries: Boundaries, reference: np.ndarray | None = None
) -> dict[str, list[float]]:
    """Every seam metric at every boundary: name -> values in the order of `boundaries.labels`.

    picture, reference: (H, W, 3) float in [0, 1], before rounding to 8 bits where possible. Names are seam/... and,
    with a reference, ref/... and reference/...: the reference's own values at the same rows, which a natural horizon
    raises as well. Columns are measured as rows of the transposed picture. No boundaries: {}; a statistic that lacks
    rows to compare with at one of them is left out. Raises ValueError for slices of less than 8 pixels and for pictures
    of different shapes.

    step_z       z of S[s] among |y - s| <= 32          band_z      z of B[s] among all rows
    step_levels  S[s]                                  band_levels B[s]
    grad_log2    of G[s], among 1 < |y - s| <= 16       sharp_log2  of E[s], among 4 < |y - s| <= 24
    ref/step_levels   mean over c of |step of D's band means|, signed per channel in step_levels_red, _green, _blue
    ref/step1_levels  S[s] of D                        ref/gain_db change of contrast, in twice the band
    ref/ser_db        D^2 near (8 rows a side) to far (> 32) in dB; ref/psnr_near, ref/psnr_far the same rows' PSNR
    ref/ser_z, ref/gain_z   z of D^2 near in dB, and of |gain|, among rows whose windows reach no seam
    """
    check_picture(picture)
    if reference is not None:
        check_pair(picture, reference)
    found: dict[str, list[float]] = {}
    for seams, transposed in ((boundaries.rows, False), (boundaries.columns, True)):
        if not seams:
            continue
        x, r = (None if p is None else _levels(p, transposed) for p in (picture, reference))
        assert x is not None
        measured = {f"seam/{name}": values for name, values in _single(x, seams).items()}
        if r is not None:
            measured |= {f"ref/{name}": values for name, values in _paired(x, r, seams).items()}
            measured |= {f"reference/{name}": values for name, values in _single(r, seams).items()}
        for name, values in measured.items():
            found.setdefault(name, []).extend(values)
    return {name: values for name, values in found.items() if len(values) == len(boundaries.labels)}


def _levels(picture: np.ndarray, transposed: bool) -> np.ndarray:
    """Grey levels 0..255 in float64, boundaries along the first axis."""
    levels: np.ndarray = picture.astype(np.float64) * 255
    return levels.transpose(1, 0, 2) if transposed else levels


def _single(x: np.ndarray, seams: tuple[int, ...]) -> dict[str, list[float]]:
    """Metrics of a picture in levels, one value a seam."""
    at = Distances.of(len(x), seams)
    step, band, grad, sharp = steps(x), bands(x, at.band), gradient(x), sharpness(x)
    found: dict[str, list[float]] = defaultdict(list)
    for s in seams:
        found["step_z"].append(robust_z(step[s], placebos(step, s, seams, at.step_apart, reach=32)))
        found["step_levels"].append(float(step[s]))
        found["band_levels"].append(float(band[s]))
        found["band_z"].append(robust_z(band[s], placebos(band, s, seams, at.band, reach=None)))
        found["grad_log2"].append(log2_ratio(grad[s], placebos(grad, s, seams, exclude=1, reach=16)))
        found["sharp_log2"].append(log2_ratio(sharp[s], placebos(sharp, s, seams, at.sharp_apart, reach=24)))
    return found


def _paired(x: np.ndarray, r: np.ndarray, seams: tuple[int, ...]) -> dict[str, list[float]]:
    """Metrics of a picture and its reference in levels, one value a seam."""
    at, difference = Distances.of(len(x), seams), x - r
    step1, energy = steps(difference), energy_profile_db(difference, at.near)
    gain, squares = gain_profile_db(x, r, 2 * at.band), (difference**2).mean((1, 2))
    found: dict[str, list[float]] = defaultdict(list)
    for s in seams:
        signed = signed_band_step(difference, s, at.band)
        near, far = near_and_far(squares, s, seams, at.near, at.far)
        found["step_levels"].append(float(np.abs(signed).mean()))
        for channel, value in zip(("red", "green", "blue"), signed, strict=True):
            found[f"step_levels_{channel}"].append(float(value))
        found["step1_levels"].append(float(step1[s]))
        found["gain_db"].append(float(gain[s]))
        found["ser_db"].append(energy_ratio_db(near, far))
        for name, profile, exclude in (
            ("gain_z", np.abs(gain), 2 * at.band - 1),
            ("ser_z", energy, at.near + at.band),
        ):
            others = placebos(profile, s, seams, exclude, reach=None)
            if len(others) >= MIN_PLACEBOS:
                found[name].append(robust_z(profile[s], others, Z_FLOOR_DB))
        found["psnr_near"].append(psnr_db(near))
        found["psnr_far"].append(psnr_db(far))
    return found
