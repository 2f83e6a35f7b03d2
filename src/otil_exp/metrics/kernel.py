"""Kernel distance between two sets of features: the arithmetic of KID, unbiased and so fit for few pictures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otil_exp.metrics.feature_sets import as_sets
from otil_exp.metrics.repeatable import repeatable

ROWS = 1024
"""Rows of a kernel matrix held at once."""


class KernelDistance(NamedTuple):
    value: float
    """Squared maximum mean discrepancy; negative values are as likely as positive ones for sets of one distribution."""

    standard_error: float | None
    """Jackknife over pictures (pairs, where paired), None below 3 a set; about 1.4 times too large where both sets have
    one distribution."""


def kernel_distance(features: np.ndarray, reference: np.ndarray, *, paired: bool = False) -> KernelDistance:
    """Unbiased squared MMD, kernel (x.y / d + 1)^3, over all pictures and no random subsets (Binkowski et al. 2018).

    features: (n, d), reference: (m, d). paired: picture i of both sets comes from one prompt (n = m), so that the two
    are alike whatever the sets are; the n terms between them would pull the value below 0 and are left out.
    Then equal sets have distance 0. Raises ValueError as `as_sets` says.
    """
    with repeatable():
        x, y = as_sets(features, reference)
        return _of_pairs(x, y) if paired else _of_independent(x, y)


def _of_pairs(x: Tensor, y: Tensor) -> KernelDistance:
    """Mean over i != j of k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i) (Gretton et al. 2012, eq. 4)."""
    assert len(x) == len(y), "pairs"
    n, pairs = len(x), kernel_of_pairs(x, y)
    within = (row_sums(x, x) - kernel_of_pairs(x, x)) + (row_sums(y, y) - kernel_of_pairs(y, y))
    terms = within - (row_sums(x, y) - pairs) - (row_sums(y, x) - pairs)
    value = float(terms.sum()) / (n * (n - 1))
    if n < 3:
        return KernelDistance(value, None)
    left_out = (terms.sum() - 2 * terms) / ((n - 1) * (n - 2))
    return KernelDistance(value, float(_jackknife_variance(left_out).sqrt()))


def _of_independent(x: Tensor, y: Tensor) -> KernelDistance:
    """Two samples that share nothing: every picture of one is compared with every picture of the other."""
    within_x, within_y = row_sums(x, x) - kernel_of_pairs(x, x), row_sums(y, y) - kernel_of_pairs(y, y)
    across_x, across_y = row_sums(x, y), row_sums(y, x)
    n, m = len(x), len(y)
    mean_x, mean_y = within_x.sum() / (n * (n - 1)), within_y.sum() / (m * (m - 1))
    value = float(mean_x + mean_y - 2 * across_x.sum() / (n * m))
    if min(n, m) < 3:
        return KernelDistance(value, None)
    variance = sum(_jackknife_variance(_left_out(*one)) for one in ((within_x, across_x, m), (within_y, across_y, n)))
    return KernelDistance(value, float(variance) ** 0.5)


def _left_out(within: Tensor, across: Tensor, others: int) -> Tensor:
    """(n,) distances with each picture of one set left out in turn, but for the other set's own mean.

    within, across: (n,) sums of the kernel of each picture with the rest of its set and with the `others` pictures
    of the other set.
    """
    n = len(within)
    return (within.sum() - 2 * within) / ((n - 1) * (n - 2)) - 2 * (across.sum() - across) / ((n - 1) * others)


def _jackknife_variance(left_out: Tensor) -> Tensor:
    n = len(left_out)
    return (left_out - left_out.mean()).square().sum() * (n - 1) / n


def row_sums(x: Tensor, y: Tensor) -> Tensor:
    """(n,) sums over y (m, d) of the kernel with each of x (n, d)."""
    return torch.cat([(rows @ y.T / x.shape[1] + 1).pow(3).sum(1) for rows in x.split(ROWS)])


def kernel_of_pairs(x: Tensor, y: Tensor) -> Tensor:
    """(n,) kernel of each of x (n, d) with its partner in y (n, d)."""
    return ((x * y).sum(1) / x.shape[1] + 1).pow(3)
