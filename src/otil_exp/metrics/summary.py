"""From the scores of single pictures to the entries of metrics.json: one schema for every metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

import numpy as np

from otil_exp.metrics.distances import set_distances
from otil_exp.metrics.pairwise import PSNR_CAP_DB
from otil_exp.metrics.picture import PictureScores, Scorers
from otil_exp.metrics.seam import PAIRED_UNITS, UNITS, Boundaries
from otil_exp.metrics.text_image import clip_score

PAIRED = {"psnr": "dB"}
"""Units of paired scores; the others have none."""


def entry(value: float | None, unit: str, n: int, model: str | None = None, **more: Any) -> dict[str, Any]:
    """One metric as metrics.json holds it: value, unit, model that scored it, number of samples, and what it needs."""
    return {"value": value, "unit": unit, "model": model, "n": n, **more}


def summarise(
    scorers: Scorers, scores: Sequence[PictureScores], boundaries: Boundaries, truth: dict[str, np.ndarray]
) -> dict[str, Any]:
    """All metrics of a run from its pictures' scores, in prompt order.

    truth: features (n, size) of the ground truth by extractor; empty where there is none.
    """
    return {
        **_paired(scores),
        **_seams(scores, boundaries),
        **_sets(scorers, scores, truth),
        **_text_image(scorers, scores),
    }


def _paired(scores: Sequence[PictureScores]) -> dict[str, Any]:
    found = {}
    for name in dict.fromkeys(name for score in scores for name in score.paired):
        raw = {f"{score.prompt:02d}": score.paired[name] for score in scores if name in score.paired}
        capped = {prompt: min(value, PSNR_CAP_DB) if name == "psnr" else value for prompt, value in raw.items()}
        more = {"identical": sum(map(math.isinf, raw.values())), "cap": PSNR_CAP_DB} if name == "psnr" else {}
        model = None if name in ("psnr", "ssim") else name
        found[f"ref/{name}"] = _over_pictures(capped, PAIRED.get(name, "1"), model) | more
    return found


def _seams(scores: Sequence[PictureScores], boundaries: Boundaries) -> dict[str, Any]:
    """Means over pictures and boundaries; the values of single pictures stay in the order of the boundaries."""
    found = {}
    for name in dict.fromkeys(name for score in scores for name in score.seams):
        family, _, statistic = name.partition("/")
        unit = (PAIRED_UNITS if family == "ref" else UNITS)[statistic]
        by_picture = {f"{score.prompt:02d}": score.seams[name] for score in scores if name in score.seams}
        means = {prompt: fmean(values) for prompt, values in by_picture.items()}
        found[name] = _over_pictures(means, unit) | {"per_image": by_picture, "boundaries": boundaries.labels}
    return found


def _sets(scorers: Scorers, scores: Sequence[PictureScores], truth: dict[str, np.ndarray]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for extractor in scorers.extractors:
        own = [score.features[extractor.name] for score in scores]
        others = {
            "orig": [score.reference_features[extractor.name] for score in scores if score.reference_features],
            "gt": [truth[extractor.name]] if extractor.name in truth else [],
        }
        for against, sets in others.items():
            reference = np.concatenate(sets) if sets else np.zeros((0, extractor.size))
            if min(len(own), len(reference)) < 2:
                reason = f"needs 2 pictures on both sides, has {len(own)} and {len(reference)}"
                found[f"{extractor.frechet_name}/{against}"] = entry(
                    None, "1", len(own), extractor.name, missing=reason
                )
                continue
            for name, distance in set_distances(np.concatenate(own), reference, extractor, against).items():
                more = {key: value for key, value in asdict(distance).items() if key not in ("value", "n", "extractor")}
                found[name] = entry(distance.value, "1", distance.n, extractor.name, **more)
    return found


def _text_image(scorers: Scorers, scores: Sequence[PictureScores]) -> dict[str, Any]:
    if scorers.text_image is None:
        return {}
    cosines = {f"{score.prompt:02d}": score.cosine for score in scores if score.cosine is not None}
    model, values = scorers.text_image.name, list(cosines.values())
    more = {"per_image": cosines, "truncated": sum(score.truncated for score in scores), "scale": "100 max(cosine, 0)"}
    key = model if model == "shapes_text_image" else "clip_score"
    return {f"text/{key}": entry(clip_score(values), "1", len(values), model, **more)}


def _over_pictures(values: dict[str, float], unit: str, model: str | None = None) -> dict[str, Any]:
    """Mean over pictures with its standard error (deviation over the root of n; None for one picture)."""
    known = list(values.values())
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return entry(fmean(known), unit, len(known), model, standard_error=error, per_image=values)
