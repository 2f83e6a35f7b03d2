"""What one metric is: an entry of the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from otil_exp.config import MetricsConfig

if TYPE_CHECKING:  # seconds; wanted by those who score, not by tables of scores
    import torch

PairScore = Callable[[np.ndarray, np.ndarray], float]
"""Picture and reference picture, (H, W, 3) float in [0, 1] -> score."""

REFERENCE, GROUND_TRUTH, SEAMS = "reference run", "ground truth", "seams"
"""What a metric may need besides the run's own pictures."""


def _always(settings: MetricsConfig) -> bool:
    return True


def _no_files(settings: MetricsConfig) -> None:
    """Nothing has to be fetched for it."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One key of metrics.json: what it is, how it is shown, and what makes it."""

    key: str

    title: str
    """Head of its column."""

    unit: str = "1"
    """Of the value in metrics.json."""

    better: int = 0
    """-1: less is better, 1: more is better, 0: neither."""

    scale: float = 1
    """What tables multiply the value with."""

    form: str = ".3g"
    """How tables print the scaled value."""

    delta: str = ""
    """How a run is set against the reference run: speedup, difference, or natural (against the reference picture at the
    same rows, reference/... in metrics.json); empty for a distance to the reference, and where it says nothing."""

    core: bool = False
    """Shown from the start."""

    enough: int | None = None
    """Pictures below which the value is mostly bias or noise; docs/metrics.md says why."""

    needs: tuple[str, ...] = ()
    """Of REFERENCE, GROUND_TRUTH and SEAMS."""

    wanted: Callable[[MetricsConfig], bool] = _always
    """Whether the settings ask for it."""

    load: Callable[[MetricsConfig, torch.device | str], PairScore] | None = None
    """What makes a score against the reference picture; None for metrics that are not made picture by picture so."""

    check_files: Callable[[MetricsConfig], object] = _no_files
    """Raises FileNotFoundError or ValueError, with what to fetch, where `load` would not find its weights."""

    model: str | None = None
    """Network behind it."""

    min_side: int = 1
    """Smallest side of a picture, in pixels, that it can score."""

    cap: float | None = None
    """Largest value that enters a mean; that of identical pictures is infinite, and they are counted."""

    @property
    def name(self) -> str:
        """The key without its family: psnr of ref/psnr."""
        return self.key.partition("/")[2]
