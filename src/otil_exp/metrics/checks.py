"""What of the metrics can be refused while composing, before a picture is made."""

from __future__ import annotations

from collections.abc import Sequence

from otil_exp.config import MetricsConfig
from otil_exp.metrics.extractors import LOADERS
from otil_exp.metrics.ground_truth import FolderPictures, ScenePictures
from otil_exp.metrics.perceptual import NAMES as PERCEPTUAL_NAMES
from otil_exp.metrics.registry import METRICS, paired_names


def check_metrics(metrics: MetricsConfig) -> None:
    """Raise ValueError, with what to type, if metrics are asked for that do not exist."""
    if metrics.perceptual is not None and metrics.perceptual not in PERCEPTUAL_NAMES:
        raise ValueError(f"metrics.perceptual={metrics.perceptual}: use {', '.join(PERCEPTUAL_NAMES)} or null")
    unknown = [name for name in metrics.paired if name not in paired_names()]
    if unknown:
        raise ValueError(f"metrics.paired={metrics.paired}: use some of {', '.join(paired_names())}, not {unknown[0]}")
    if any(name not in LOADERS for name in metrics.extractors):
        raise ValueError(f"metrics.extractors={metrics.extractors}: use some of {', '.join(LOADERS)}")
    if metrics.ground_truth is not None and not metrics.extractors:
        raise ValueError(
            f"metrics.ground_truth={metrics.ground_truth} without metrics.extractors: nothing would "
            "compare with it; use metrics.extractors=[inception] or metrics=shapes"
        )


def check_weights(settings: MetricsConfig) -> None:
    """Raise FileNotFoundError, with all that is to be fetched, if files of the asked metrics are missing; load none."""
    missing: dict[str, None] = {}
    for check in {metric.check_files: None for metric in METRICS if metric.wanted(settings)}:
        try:
            check(settings)
        except FileNotFoundError as error:
            missing[str(error)] = None
    if missing:
        raise FileNotFoundError("; ".join(missing))


def check_ground_truth(settings: MetricsConfig) -> None:
    """Raise ValueError, with what to do, unless a folder of ground truth is there with 2 pictures or more.

    All of them are opened, as far as their headers tell.
    """
    if settings.ground_truth not in (None, "renders"):
        FolderPictures(settings.ground_truth).check()


def check_scorable(settings: MetricsConfig, captions: Sequence[str], height: int, width: int) -> None:
    """Raise ValueError, with what to do, if pictures of this size and these captions cannot be scored."""
    for metric in METRICS:
        if metric.wanted(settings) and min(height, width) < metric.min_side:
            raise ValueError(
                f"height={height} width={width}: {metric.key} needs {metric.min_side} pixels a side; use a larger "
                "picture, or leave it out of metrics"
            )
    if settings.ground_truth == "renders":
        try:
            ScenePictures(captions, height, width)
        except ValueError as error:
            raise ValueError(
                f"metrics.ground_truth=renders: {error}; for captions of other things use metrics=pairwise"
            ) from error
