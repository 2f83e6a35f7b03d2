"""metrics.json and steps.csv as what W&B shows at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from otil_exp.run_folder.steps import Steps


def values(metrics: dict[str, Any]) -> dict[str, float | None]:
    """The value of every metric under its own key."""
    return {key: entry["value"] for key, entry in metrics.items()}


SPREAD = ("standard_error", "median", "p5", "p95")
"""What says how sure a value is, where a metric has it."""


def spread(metrics: dict[str, Any]) -> dict[str, float]:
    """How sure the values are: key/standard_error of scores, key/median and more of times."""
    return {
        f"{key}/{part}": entry[part] for key, entry in metrics.items() for part in SPREAD if entry.get(part) is not None
    }


def per_prompt(prompts: Sequence[dict[str, Any]], metrics: dict[str, Any]) -> tuple[list[str | int], list[list[Any]]]:
    """Columns and rows of a table: a prompt a row, a score of single pictures a column (mean over its seams)."""
    scores = {key: entry["per_image"] for key, entry in metrics.items() if entry.get("per_image")}
    rows = [
        [prompt["index"], prompt["text"], prompt["seed"]]
        + [_mean(per_image.get(f"{prompt['index']:02d}")) for per_image in scores.values()]
        for prompt in prompts
    ]
    return ["prompt", "text", "seed", *scores], rows


def histograms(steps: Steps) -> dict[str, np.ndarray]:
    """Milliseconds of rank 0's steps, by kind."""
    own = steps.where(steps.column("rank") == 0)
    return {kind: own.column("ms")[mask] for kind in own.kinds if (mask := own.of_kind(kind)).any()}


def _mean(score: float | list[float] | None) -> float | None:
    return fmean(score) if isinstance(score, list) else score
