"""GroupNorms of a VAE's decoder whose statistics take the whole GPU: PyTorch's own has one thread block a group."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL
from torch import Tensor, nn

from otil_exp.rank_unet.sliced.tree import replace_layers, shared_copy
from otil_exp.rank_unet.statistics import combined, normalised, slice_statistics


def spread_groupnorms(vae: AutoencoderKL) -> AutoencoderKL:
    """The same VAE over the same weights, with such GroupNorms in its decoder; equal to it up to rounding."""
    spread: AutoencoderKL = shared_copy(vae)
    replace_layers(
        spread.decoder, lambda name, layer: SpreadGroupNorm(layer) if isinstance(layer, nn.GroupNorm) else None
    )
    return spread


class SpreadGroupNorm(nn.GroupNorm):
    """For inference: statistics of each channel, then of each group, then one multiply-add.

    A channel can be read in place whether the layout is contiguous or channels_last; to read a group, the latter would
    be copied.
    """

    def __init__(self, norm: nn.GroupNorm) -> None:
        """norm: whose weights these are, too."""
        with torch.device("meta"):
            super().__init__(norm.num_groups, norm.num_channels, norm.eps, norm.affine)
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, C, h, w), or (n, C, tokens) of attention. Returns the same shape, dtype and layout."""
        pixels = x.flatten(2)[..., None]
        channels = slice_statistics(pixels, self.num_channels).unflatten(2, (self.num_groups, -1))
        statistics = combined(channels.movedim(-1, 0))  # the channels of a group are equal parts of it
        return normalised(pixels, *statistics, self).view_as(x)
