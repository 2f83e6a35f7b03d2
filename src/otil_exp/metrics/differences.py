"""Two methods over the same prompts: the difference that their common prompts leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

PerImage = Mapping[str, float | Sequence[float]]
"""A metric's `per_image`: prompt -> value, or values of its boundaries, of which the mean counts."""


class PairedDifference(NamedTuple):
    """Of two methods, first minus second, over the prompts that both have."""

    mean: float

    standard_error: float | None
    """Of the mean of the differences; None for one prompt."""

    n: int


def paired_difference(first: PerImage, second: PerImage) -> PairedDifference | None:
    """Mean difference of two methods over prompts, in the metric's unit; None where they share no prompt.

    Prompts differ far more than methods do, so this error is much smaller than those of the two means: 34.48 and 34.43
    dB with an error of 1.27 each may well be apart.
    """
    apart = np.array([_value(first[prompt]) - _value(second[prompt]) for prompt in first if prompt in second])
    if not len(apart):
        return None
    error = float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else None
    return PairedDifference(float(apart.mean()), error, len(apart))


def _value(score: float | Sequence[float]) -> float:
    return fmean(score) if isinstance(score, Sequence) else score
