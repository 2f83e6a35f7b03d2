"""What the seam metrics detect: faults planted in photos and on a flat field, natural horizons, and the time they take.

    python -m benchmarks.seam_calibration

Prints the Markdown tables of seam_calibration.md (CPU only, minutes). Needs scikit-image for its photos.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.seam_defects import (
    Defect,
    Values,
    blur,
    contrast,
    crops,
    drift,
    drop_row,
    flat_field,
    horizons,
    measured,
    ramp,
    roc_auc,
    set_means,
    shift,
    step,
    warp,
)
from otil_exp.metrics.seam import Boundaries, boundaries, seam_metrics

DEFECTS: dict[str, Defect] = {
    "step 1": step(1),
    "step 2": step(2),
    "step 4": step(4),
    "step 8": step(8),
    "ramp 4": ramp(4),
    "ramp 8": ramp(8),
    "contrast 1.05": contrast(1.05),
    "contrast 1.1": contrast(1.1),
    "contrast 1.25": contrast(1.25),
    "blur": blur(),
    "drop row": drop_row,
    "shift 1 px": shift(1),
}
FAINT: dict[str, Defect] = {
    "step 0.25": step(0.25),
    "step 0.5": step(0.5),
    "step 1": step(1),
    "ramp 1": ramp(1),
    "ramp 2": ramp(2),
}
TWO_SIDED = ("seam/sharp_log2", "ref/gain_db")
LOW_IS_BAD = ("ref/psnr_near", "ref/psnr_far")
PAIRED = ("ref/step_levels", "ref/step1_levels", "ref/gain_db", "ref/ser_db", "ref/psnr_near", "ref/psnr_far")
Deviation = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def oriented(pictures: list[np.ndarray], references: list[np.ndarray] | None = None) -> Values:
    """Every metric at SEAM of 8-bit pictures: more means more of a seam, and two-sided ones are their size."""
    values = measured(pictures, references)
    turned = {name: np.abs(values[name]) for name in TWO_SIDED if name in values}
    turned |= {name: -values[name] for name in LOW_IS_BAD if name in values}
    return values | turned


def single(without: np.ndarray, planted: np.ndarray) -> float:
    return roc_auc(without, planted)


def of_sets(without: np.ndarray, planted: np.ndarray) -> float:
    rng = np.random.default_rng(1)
    return roc_auc(set_means(without, rng), set_means(planted, rng))


def table(title: str, without: Values, planted: dict[str, Values], aucs: list[Callable[..., float]]) -> None:
    """AUC x 100 a metric and defect; several kinds of AUC divided by a slash."""
    print(f"\n{title}\n\n| metric | {' | '.join(planted)} |\n|---|{'---|' * len(planted)}")
    for name in without:
        cells = ["/".join(f"{100 * auc(without[name], found[name]):.0f}" for auc in aucs) for found in planted.values()]
        print(f"| `{name}` | {' | '.join(cells)} |")


def photo_tables() -> None:
    photos = crops(20)
    planted = {name: oriented([defect(photo) for photo in photos]) for name, defect in DEFECTS.items()}
    title = f"Photos, {len(photos)} crops: one picture / the mean of 16"
    table(title, oriented(photos), planted, [single, of_sets])


def flat_tables() -> None:
    for noise in (1.0, 3.0):
        rng = np.random.default_rng(0)
        fields = [flat_field(rng, noise) for _ in range(100)]
        planted = {name: oriented([defect(field) for field in fields]) for name, defect in FAINT.items()}
        table(
            f"Flat field with a vase, noise of {noise:g} levels, 100 fields: one picture",
            oriented(fields),
            planted,
            [single],
        )


def paired_table(title: str, deviate: Deviation) -> None:
    """Defects on top of a deviation without a seam, and how often natural horizons pass for one."""
    rng = np.random.default_rng(0)
    photos, edges = crops(10), horizons(6)
    others = [deviate(photo, rng) for photo in photos]
    without = oriented(others, photos)
    at_edges = oriented([deviate(edge, rng) for edge in edges], edges)
    shown = {name: without[name] for name in ("seam/step_z", *PAIRED)}
    planted = {
        name: oriented([defect(other) for other in others], photos)
        for name, defect in ({"step 1": step(1), "ramp 2": ramp(2)} | DEFECTS).items()
        if name in ("step 1", "step 2", "ramp 2", "contrast 1.05", "blur", "drop row", "shift 1 px")
    }
    table(f"{title}, {len(photos)} crops: one picture", shown, planted, [single])
    alarms = {name: np.mean(at_edges[name] > np.quantile(without[name], 0.95)) for name in shown}
    print("\nNatural horizons above what 95 % of the other crops reach, of", len(edges), "(5 % expected of no seam):")
    print(", ".join(f"`{name}` {100 * share:.0f} %" for name, share in alarms.items()))


def times() -> None:
    for side in (256, 1024):
        picture, reference = np.random.default_rng(0).random((2, side, side, 3))
        seams, start = Boundaries(rows=tuple(boundaries(side, 4))), time.perf_counter()
        for _ in range(5):
            seam_metrics(picture, seams, reference)
        print(
            f"\n{side} x {side}, 4 slices, with reference: {(time.perf_counter() - start) / 5 * 1000:.0f} ms a picture"
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    photo_tables()
    flat_tables()
    paired_table("Beside the reference, smooth deviation of 2 levels", drift)
    paired_table("Beside the reference, edges moved by 0.3 px", warp)
    times()
