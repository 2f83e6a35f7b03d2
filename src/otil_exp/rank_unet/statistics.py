"""GroupNorm of a picture whose slices live apart: mean and biased variance a slice, and how they combine.

Statistics of a slice are a tensor (2, n, groups): mean, then biased variance about that mean, in fp32 (float64 for
float64 activations). All slices have the same number of elements.
"""

from __future__ import annotations

import torch
from torch import nn


def slice_statistics(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Mean and biased variance of each group of a slice. x: (n, C, h, w). Returns (2, n, groups)."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    grouped = x.reshape(x.shape[0], groups, -1)
    if x.is_cuda:
        variance, mean = torch.var_mean(grouped.to(dtype), dim=-1, correction=0)
    else:  # var_mean is not vectorised on the CPU: ten times slower than two passes
        mean = grouped.mean(dim=-1, dtype=dtype)
        variance = (grouped - mean[..., None]).square_().mean(dim=-1)
    return torch.stack([mean, variance])


def combined(slices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and biased variance of the whole from those of its equal slices (Chan, Golub, LeVeque 1979).

    slices: (N, 2, n, groups). Returns mean and variance, (n, groups) each.
    """
    means, variances = slices[:, 0], slices[:, 1]
    mean = means.mean(dim=0)
    return mean, variances.mean(dim=0) + (means - mean).square().mean(dim=0)


def corrected(stale: torch.Tensor, own: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stale statistics of the whole, shifted by how much the own slice's changed since (DistriFusion, section 4.2).

    E[x] = E_stale[x] + (own[x] - own_stale[x]), and the same for E[x^2] (modules/pp/groupnorm.py:52). Here the second
    moment is taken about the stale mean instead of 0, which is the same function without the cancellation. Where
    the variance comes out negative, the own slice's stands in (:63).
    stale: (N, 2, n, groups); own, before: (2, n, groups), the own slice's now and in stale. Returns mean and variance.
    """
    center, variance = combined(stale)
    (own_mean, own_variance), (old_mean, old_variance) = own, before
    change = own_mean - old_mean
    new_square = own_variance + (own_mean - center).square()
    old_square = old_variance + (old_mean - center).square()
    variance = variance + new_square - old_square - change.square()
    return center + change, torch.where(variance < 0, own_variance, variance)


def normalised(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, norm: nn.GroupNorm) -> torch.Tensor:
    """Normalise each group of x (n, C, h, w) with the given mean and variance (n, groups); affine as in `norm`.

    Computed in the dtype of the statistics, returned in that of x. For inference only (no gradient).
    """
    shift, scale = affine(mean, variance, norm)
    # One kernel that reads and writes x's own dtype; the arithmetic is that of torch's GroupNorm kernels.
    return torch.addcmul(shift, x, scale, out=torch.empty_like(x))


def affine(mean: torch.Tensor, variance: torch.Tensor, norm: nn.GroupNorm) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift and scale that normalise x to shift + x * scale. mean, variance: (n, groups); results (n, C, 1, 1)."""
    scale = (variance + norm.eps).rsqrt()
    scale, mean = (t.repeat_interleave(norm.num_channels // norm.num_groups, dim=1) for t in (scale, mean))
    if norm.affine:
        scale = scale * norm.weight
    shift = -mean * scale
    if norm.affine:
        shift = shift + norm.bias
    return shift[..., None, None], scale[..., None, None]
