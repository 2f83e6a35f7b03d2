"""Frechet distance between two sets of features: the arithmetic of FID, exact for few pictures as for many.

Not torchmetrics': its eigenvalues of the unsymmetric S1 S2 lose up to 2e-5 of the value where there are fewer pictures
than features, turn negative for equal sets, and its states may be set to float32. The form here holds for any number
of pictures, so one arithmetic serves a demo of 16 and a table of 5,000.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otil_exp.metrics.feature_sets import as_sets
from otil_exp.metrics.repeatable import repeatable

ROUNDING = 1e-12
"""A distance below this part of the sets' total variance is rounding, and counts as 0."""


def frechet_distance(features: np.ndarray, reference: np.ndarray) -> float:
    """Squared Frechet distance of the normal distributions fitted to both sets (Heusel et al. 2017, eq. 6); >= 0.

    |m1 - m2|^2 + tr S1 + tr S2 - 2 tr sqrt(S1 S2), with unbiased covariances; in squared units of a feature.
    features: (n, d), reference: (m, d). With S1 = A^T A and S2 = B^T B, tr sqrt(S1 S2) is the sum of the singular
    values of A B^T, which is at most min(n, d) x min(m, d). Raises ValueError as `as_sets` says.
    """
    with repeatable():
        ours, theirs = as_sets(features, reference)
        a, b = root_of_covariance(ours), root_of_covariance(theirs)
        spread = float(a.square().sum() + b.square().sum())
        shared = float(torch.linalg.svdvals(a @ b.T).sum())
        distance = float((ours.mean(0) - theirs.mean(0)).square().sum()) + spread - 2 * shared
    return distance if distance > ROUNDING * spread else 0.0


def root_of_covariance(features: Tensor) -> Tensor:
    """A with A^T A = the unbiased covariance of features (n, d); (min(n, d), d)."""
    n, d = features.shape
    centred = (features - features.mean(0)) / (n - 1) ** 0.5
    return centred if n <= d else torch.linalg.qr(centred, mode="r").R
