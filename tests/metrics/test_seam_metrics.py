"""All seam metrics together: names, hand-made pictures, symmetries, thin slices."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from otil_exp.metrics.registry import SEAMS_ALONE, SEAMS_PAIRED
from otil_exp.metrics.seam import Boundaries, boundaries, seam_metrics
from otil_exp.metrics.seam.measure import Distances

MIDDLE = Boundaries(rows=(64,))
ALONE = [metric.name for metric in SEAMS_ALONE if metric.key.startswith("seam/")]
PAIRED = [metric.name for metric in SEAMS_PAIRED]


def noise(height: int = 128, width: int = 96, seed: int = 0) -> np.ndarray:
    """Grey with noise of 5 levels, (height, width, 3) in [0, 1]."""
    return np.random.default_rng(seed).normal(128, 5, (height, width, 3)) / 255


def flat_step(levels: float = 1) -> np.ndarray:
    picture = np.full((128, 96, 3), 100 / 255)
    picture[64:] += levels / 255
    return picture


def test_a_step_of_one_level_on_a_flat_field() -> None:
    """z has its upper end, the other rows having no step; log2(1.01 / .01); E = (1 + 1) / 4."""
    found = seam_metrics(flat_step(), MIDDLE)
    assert {name: round(values[0], 6) for name, values in found.items()} == {
        "seam/step_z": 10,
        "seam/step_levels": 1,
        "seam/band_levels": 1,
        "seam/band_z": 10,
        "seam/grad_log2": round(math.log2(101), 6),
        "seam/sharp_log2": round(math.log2(51), 6),
    }


def test_a_step_against_a_reference_without() -> None:
    """|D| = 1 in the lower half: mean D^2 is 1/2 in the near rows 56..71, 47/95 in the far ones 0..47 and 81..127."""
    reference = noise()
    picture = reference.copy()
    picture[64:] += np.array([1, -1, 1]) / 255
    found = {name: values[0] for name, values in seam_metrics(picture, MIDDLE, reference).items()}
    far = 47 / 95
    assert found["ref/step_levels"] == pytest.approx(1)
    assert [found[f"ref/step_levels_{c}"] for c in ("red", "green", "blue")] == pytest.approx([1, -1, 1])
    assert found["ref/step1_levels"] == pytest.approx(1)
    assert found["ref/gain_db"] == pytest.approx(0, abs=1e-9)
    assert found["ref/ser_db"] == pytest.approx(10 * math.log10((0.5 + 1e-4) / (far + 1e-4)))
    assert found["ref/psnr_near"] == pytest.approx(20 * math.log10(255) - 10 * math.log10(0.5))
    assert found["ref/psnr_far"] == pytest.approx(20 * math.log10(255) - 10 * math.log10(far))


def test_a_picture_that_is_its_reference_has_no_seam_whatever_is_in_it() -> None:
    picture = noise()
    picture[64:] *= 0.3
    found = seam_metrics(picture, MIDDLE, picture)
    paired = {name: values[0] for name, values in found.items() if name.startswith("ref/")}
    assert {name for name, value in paired.items() if value != 0} == {"ref/psnr_near", "ref/psnr_far"}
    assert paired["ref/psnr_near"] == paired["ref/psnr_far"] == 100
    assert all(found[f"seam/{name}"] == found[f"reference/{name}"] for name in ALONE)


def test_the_references_own_values_are_those_it_has_alone() -> None:
    picture, reference = noise(seed=1), noise(seed=2)
    alone, beside = seam_metrics(reference, MIDDLE), seam_metrics(picture, MIDDLE, reference)
    assert {name: beside[f"reference/{name}"] for name in ALONE} == {name: alone[f"seam/{name}"] for name in ALONE}


def test_names_and_one_value_a_boundary_ready_for_json() -> None:
    both = Boundaries(rows=tuple(boundaries(128, 4)))
    both = Boundaries(rows=both.rows, columns=(48,))
    found = seam_metrics(noise(), both, noise(seed=1))
    # Slices of 32 rows leave 4 rows whose windows of 16 a side reach no seam: too few for a z of the gain.
    paired = [name for name in PAIRED if name != "gain_z"]
    expected = [f"seam/{n}" for n in ALONE] + [f"ref/{n}" for n in paired] + [f"reference/{n}" for n in ALONE]
    assert list(found) == expected
    assert {len(values) for values in found.values()} == {len(both.labels)} == {4}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_picture_without_boundaries_has_no_values() -> None:
    assert seam_metrics(noise(), Boundaries()) == {}


def test_columns_are_rows_of_the_transposed_picture() -> None:
    picture, reference = noise(seed=1), noise(seed=2)
    rows = seam_metrics(picture, Boundaries(rows=(32, 64)), reference)
    columns = seam_metrics(picture.transpose(1, 0, 2), Boundaries(columns=(32, 64)), reference.transpose(1, 0, 2))
    assert rows == columns


def test_each_orientation_is_measured_by_itself() -> None:
    picture = flat_step(2)
    found = seam_metrics(picture, Boundaries(rows=(64,), columns=(48,)))
    assert found["seam/band_levels"] == pytest.approx([2, 0], abs=1e-9)


def test_upside_down_only_signs_change() -> None:
    picture, reference = noise(seed=1), noise(seed=2)
    picture[64:] = 0.5 + 1.2 * (picture[64:] - 0.5)
    found = seam_metrics(picture, MIDDLE, reference)
    turned = seam_metrics(picture[::-1], MIDDLE, reference[::-1])
    signed = {"ref/gain_db", *(f"ref/step_levels_{c}" for c in ("red", "green", "blue"))}
    # The far rows y with |y - 64| > 16 are one more above than below.
    for name in found.keys() - {"ref/ser_db", "ref/psnr_far"}:
        assert turned[name] == pytest.approx([(-1 if name in signed else 1) * found[name][0]], rel=1e-9), name


def test_float32_pictures_are_measured_in_float64() -> None:
    picture, reference = noise(seed=1).astype(np.float32), noise(seed=2).astype(np.float32)
    exact = seam_metrics(picture.astype(np.float64), MIDDLE, reference.astype(np.float64))
    assert seam_metrics(picture, MIDDLE, reference) == exact


def test_another_seam_is_no_placebo() -> None:
    """Three equal seams on noise: each stands out as one alone does."""
    picture = noise(256)
    alone, three = picture.copy(), picture.copy()
    for y in (64, 128, 192):
        three[y:] += 3 / 255
    alone[128:] += 3 / 255
    z_alone = seam_metrics(alone, Boundaries(rows=(128,)))["seam/step_z"][0]
    z_three = seam_metrics(three, Boundaries(rows=(64, 128, 192)))["seam/step_z"]
    assert z_three[1] == pytest.approx(z_alone)
    assert 3 < min(z_three) <= max(z_three) < 10


def test_bands_are_two_latent_rows_and_fewer_in_small_pictures_and_thin_slices() -> None:
    widths = [
        Distances.of(size, tuple(boundaries(size, slices))).band
        for size, slices in [(1024, 4), (256, 8), (128, 2), (64, 4)]
    ]
    assert widths == [16, 8, 8, 4]


def test_slices_of_one_latent_row_are_measured_and_thinner_ones_refused() -> None:
    found = seam_metrics(noise(64), Boundaries(rows=tuple(boundaries(64, 8))), noise(64, seed=1))
    assert np.isfinite(list(found.values())).all()
    with pytest.raises(ValueError, match="at least 8 pixels"):
        seam_metrics(noise(64), Boundaries(rows=(7,)))
    with pytest.raises(ValueError, match="at least 8 pixels"):
        seam_metrics(noise(64), Boundaries(rows=(64,)))


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="uint8"):
        seam_metrics(np.zeros((64, 64, 3), np.uint8), Boundaries(rows=(32,)))
    with pytest.raises(ValueError, match="same size"):
        seam_metrics(noise(64), Boundaries(rows=(32,)), noise(128))


def most_detailed_at_the_seam(fault: float) -> tuple[np.ndarray, np.ndarray]:
    """Noise of 1 to 10 levels, rising and falling every 64 of 256 rows, highest at row 128; a method errs by a tenth.

    fault: levels of noise that it adds in the 8 rows on either side of the boundary at row 128.
    """
    rng = np.random.default_rng(0)
    detail = 10 ** (0.5 + 0.5 * np.cos(2 * np.pi * np.arange(256) / 64))[:, None, None]
    reference = 128 + detail * rng.normal(size=(256, 96, 3))
    picture = reference + 0.1 * detail * rng.normal(size=reference.shape)
    picture[120:136] += fault * rng.normal(size=(16, 96, 3))
    return picture.clip(0, 255) / 255, reference / 255


def test_detail_at_the_seam_raises_the_energy_ratio_and_not_its_z() -> None:
    """Mean energy of the rows with detail is far above the rest: 3 dB and more, as if there were a fault."""
    seam = Boundaries(rows=(128,))
    without, with_one = (most_detailed_at_the_seam(fault) for fault in (0, 30))
    quiet, faulty = (seam_metrics(picture, seam, reference) for picture, reference in (without, with_one))
    assert quiet["ref/ser_db"][0] > 3
    assert quiet["ref/ser_z"][0] < 2
    assert faulty["ref/ser_z"][0] > 3


def test_a_change_of_contrast_is_told_from_a_picture_that_varies_in_contrast() -> None:
    """Half the contrast below the boundary of an even picture stands out; without it nothing does."""
    reference = np.random.default_rng(0).normal(128, 10, (256, 96, 3))
    picture = reference + np.random.default_rng(1).normal(0, 1, reference.shape)
    same, boundaries = picture.copy(), Boundaries(rows=(128,))
    picture[128:] = 128 + 0.5 * (picture[128:] - 128)
    changed = seam_metrics(picture / 255, boundaries, reference / 255)
    assert changed["ref/gain_db"][0] == pytest.approx(20 * math.log10(0.5), abs=0.1)
    assert changed["ref/gain_z"][0] > 5
    assert abs(seam_metrics(same / 255, boundaries, reference / 255)["ref/gain_z"][0]) < 2
