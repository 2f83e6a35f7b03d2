"""What the seam metrics detect on photos: planted faults, natural horizons, a flat field (figures: benchmarks/)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from benchmarks.seam_defects import (
    Defect,
    Values,
    blur,
    contrast,
    crops,
    drift,
    flat_field,
    horizons,
    measured,
    ramp,
    roc_auc,
    set_means,
    step,
)

pytestmark = pytest.mark.slow


@cache
def clean() -> Values:
    return measured(crops(5))


def set_auc(metric: str, defect: Defect, of: Callable[[np.ndarray], np.ndarray] = np.asarray) -> float:
    """AUC of the means of sets of 16 photos, with the defect against without."""
    rng = np.random.default_rng(0)
    planted = measured([defect(crop) for crop in crops(5)])
    return roc_auc(set_means(of(clean()[metric]), rng), set_means(of(planted[metric]), rng))


@pytest.mark.parametrize("levels", [1, 2, 4, 8])
def test_sets_of_photos_show_a_step_in_brightness(levels: float) -> None:
    assert set_auc("seam/step_z", step(levels)) >= 0.95


@pytest.mark.parametrize("gain", [1.05, 1.1, 1.25])
def test_sets_of_photos_show_a_step_in_contrast(gain: float) -> None:
    assert set_auc("seam/step_z", contrast(gain)) >= 0.95


def test_sets_of_photos_show_blur_at_the_seam() -> None:
    assert set_auc("seam/sharp_log2", blur(), of=np.abs) >= 0.95


@cache
def flat() -> tuple[list[np.ndarray], Values]:
    rng = np.random.default_rng(0)
    fields = [flat_field(rng) for _ in range(50)]
    return fields, measured(fields)


@pytest.mark.parametrize("defect", [step(0.5), ramp(1)], ids=["step of 0.5 levels", "ramp of 1 level over 16 pixels"])
def test_one_flat_field_shows_what_no_photo_shows(defect: Defect) -> None:
    fields, without = flat()
    planted = measured([defect(field) for field in fields])
    for metric in ("seam/band_levels", "seam/band_z"):
        assert roc_auc(without[metric], planted[metric]) >= 0.99, metric


def test_a_natural_horizon_at_the_seam_is_no_seam_beside_its_reference() -> None:
    """Sets of horizons look seamed; beside their references they are as silent as other rows (nominally 5 %)."""
    rng = np.random.default_rng(0)
    others, edges = crops(5) * 3, horizons(3) * 3
    usual = measured([drift(crop, rng) for crop in others], others)
    at_edges = measured([drift(crop, rng) for crop in edges], edges)
    assert roc_auc(*(set_means(found["seam/step_z"], rng) for found in (usual, at_edges))) >= 0.8

    excess = at_edges["seam/step_z"] - at_edges["reference/step_z"]
    assert abs(excess.mean()) < 3 * excess.std() / np.sqrt(len(excess))
    # Skies that are black in 8 bits leave no deviation far from the seam, which the energy ratio notices.
    for metric, share in (("step_levels", 0.1), ("step1_levels", 0.1), ("gain_db", 0.1), ("ser_db", 0.15)):
        values, value_at_edges = (np.abs(found[f"ref/{metric}"]) for found in (usual, at_edges))
        assert np.mean(value_at_edges > np.quantile(values, 0.95)) <= share, metric
