"""From the scores of single pictures to the entries of metrics.json: one schema for every metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from otil_exp.metrics.distances import set_distances
from otil_exp.metrics.metric import GROUND_TRUTH, REFERENCE, SEAMS
from otil_exp.metrics.picture import PictureScores, Scorers
from otil_exp.metrics.registry import COST, METRICS, SETS, STAGES, lookup
from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.sizes import SHAPES
from otil_exp.metrics.text_image import clip_score


@dataclass(frozen=True)
class Truth:
    """The ground truth of a run, as its distances need it."""

    identity: dict[str, Any]
    """Which pictures; stands in the entries, so that two ground truths are told apart."""

    features: dict[str, np.ndarray]
    """(n, size) by extractor."""

    paired: bool
    """Whether its picture i shows what the run's prompt i asks for."""


def entry(key: str, value: float | None, n: int, model: str | None = None, **more: Any) -> dict[str, Any]:
    """One metric as metrics.json holds it: value, unit, model that scored it, number of samples, and what it needs."""
    return {"value": value, "unit": lookup(key).unit, "model": model, "n": n, **more}


def summarise(
    scorers: Scorers,
    scores: Sequence[PictureScores],
    boundaries: Boundaries,
    truth: Truth | None,
    no_reference: str | None = None,
) -> dict[str, Any]:
    """All metrics of a run from its pictures' scores, in prompt order.

    truth: the ground truth; None where none is asked for.
    no_reference: what to do about a reference that is not there, for the entries that are asked for and need it; None
    for a reference run itself, which has no such entries.
    """
    found = {
        **_paired(scores),
        **_seams(scores, boundaries),
        **_sets(scorers, scores, truth),
        **_text_image(scorers, scores),
    }
    return found | _missing(scorers, scores, boundaries, truth, found, no_reference)


def _paired(scores: Sequence[PictureScores]) -> dict[str, Any]:
    found = {}
    for key in dict.fromkeys(key for score in scores for key in score.paired):
        metric = lookup(key)
        raw = {f"{score.prompt:02d}": score.paired[key] for score in scores if key in score.paired}
        capped = {prompt: value if metric.cap is None else min(value, metric.cap) for prompt, value in raw.items()}
        more = {} if metric.cap is None else {"identical": sum(map(math.isinf, raw.values())), "cap": metric.cap}
        found[key] = _over_pictures(key, capped, metric.model) | more
    return found


def _seams(scores: Sequence[PictureScores], boundaries: Boundaries) -> dict[str, Any]:
    """Means over pictures and boundaries; the values of single pictures stay in the order of the boundaries."""
    found = {}
    for key in dict.fromkeys(key for score in scores for key in score.seams):
        by_picture = {f"{score.prompt:02d}": score.seams[key] for score in scores if key in score.seams}
        means = {prompt: fmean(values) for prompt, values in by_picture.items()}
        found[key] = _over_pictures(key, means) | {"per_image": by_picture, "boundaries": boundaries.labels}
    return found


def _sets(scorers: Scorers, scores: Sequence[PictureScores], truth: Truth | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for extractor in scorers.extractors:
        own = [score.features[extractor.name] for score in scores]
        beside = [score.reference_features[extractor.name] for score in scores if score.reference_features]
        others = {"orig": beside, "gt": [truth.features[extractor.name]] if truth else []}
        for against, sets in others.items():
            reference = np.concatenate(sets) if sets else np.zeros((0, extractor.size))
            if min(len(own), len(reference)) < 2:
                continue
            paired = against == "orig" or (truth is not None and truth.paired)
            distances = set_distances(np.concatenate(own), reference, extractor, against, paired=paired)
            for key, distance in distances.items():
                more = {name: value for name, value in asdict(distance).items() if name not in IN_EVERY_ENTRY}
                if truth is not None and against == "gt":
                    more["ground_truth"] = truth.identity
                found[key] = entry(key, distance.value, distance.n, extractor.name, **more)
    return found


IN_EVERY_ENTRY = ("value", "n", "extractor")
"""Fields of a SetDistance that every entry has."""


def _missing(
    scorers: Scorers,
    scores: Sequence[PictureScores],
    boundaries: Boundaries,
    truth: Truth | None,
    found: dict[str, Any],
    no_reference: str | None,
) -> dict[str, Any]:
    """Entries without a value for what was asked for and could not be made, saying why."""
    compared = any(score.compared for score in scores)
    entries = {}
    for metric in METRICS:
        if metric.key in found or metric in (*COST, *STAGES) or not metric.wanted(scorers.settings):
            continue
        if REFERENCE in metric.needs and not compared and no_reference is None:
            continue
        if metric in SETS:
            others = len(truth.features[str(metric.model)]) if truth and GROUND_TRUTH in metric.needs else 0
            beside = len(scores) * compared if REFERENCE in metric.needs else others
            why = f"needs 2 pictures on both sides, has {len(scores)} and {beside}"
        elif REFERENCE in metric.needs and not compared:
            why = str(no_reference)
        elif SEAMS in metric.needs and not boundaries.labels:
            why = "this method leaves no boundary of slices in a picture"
        elif SEAMS in metric.needs:
            why = "the slices are too thin: too few rows that are no boundary to compare with"
        else:
            why = "there were no pictures"
        entries[metric.key] = entry(metric.key, None, 0, metric.model, missing=why)
    return entries


def _text_image(scorers: Scorers, scores: Sequence[PictureScores]) -> dict[str, Any]:
    if scorers.text_image is None:
        return {}
    cosines = {f"{score.prompt:02d}": score.cosine for score in scores if score.cosine is not None}
    model = scorers.text_image.name
    key = f"text/{model if model == SHAPES else 'clip_score'}"
    by_picture = {prompt: clip_score([value]) for prompt, value in cosines.items()}
    more = {"cosines": cosines, "truncated": sum(score.truncated for score in scores), "scale": "100 max(cosine, 0)"}
    return {key: _over_pictures(key, by_picture, model) | more}


def _over_pictures(key: str, values: dict[str, float], model: str | None = None) -> dict[str, Any]:
    """Mean over pictures with its standard error (deviation over the root of n; None for one picture)."""
    known = list(values.values())
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return entry(key, fmean(known), len(known), model, standard_error=error, per_image=values)
