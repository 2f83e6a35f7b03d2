"""Two sets of features that may be compared."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def as_sets(features: np.ndarray, reference: np.ndarray) -> tuple[Tensor, Tensor]:
    """Both sets, (n, d) and (m, d), as float64.

    Shards of several ranks are joined by the caller, in the order of the pictures; an empty shard is (0, d).
    Raises ValueError for fewer than 2 pictures, another number of features, or values that are not finite.
    """
    if features.ndim != 2 or reference.ndim != 2 or features.shape[1] != reference.shape[1]:
        raise ValueError(
            f"features of shapes {features.shape} and {reference.shape} are not comparable: "
            "pass (n, d) and (m, d) of one extractor"
        )
    for pictures in (features, reference):
        if len(pictures) < 2:
            raise ValueError(
                f"{len(features)} pictures against {len(reference)}: a distance between sets needs at least 2 on each "
                "side, use more prompts (prompts.limit=2 or more)"
            )
        if not np.isfinite(pictures).all():
            raise ValueError("features with NaN or infinity: one of the pictures is broken, look at them")
    ours, theirs = (torch.from_numpy(np.array(values, dtype=np.float64)) for values in (features, reference))
    return ours, theirs
