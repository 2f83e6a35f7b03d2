"""GroupNorm, activation and convolution of a slice, whose exchanges are one."""

from __future__ import annotations

import torch
from torch import nn

from otil_exp.rank_unet.sliced.conv import SlicedConv
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.layer import SlicedLayer


class NormedConv(SlicedLayer):
    """Three layers in a row; a synchronous step gathers statistics and raw halo rows by one collective.

    The rows are normalised and activated where they arrive, element by element as in the slice they come from.
    """

    def __init__(self, norm: SlicedGroupNorm, activation: nn.Module, conv: SlicedConv) -> None:
        """activation: works element by element."""
        super().__init__()
        self.norm, self.activation, self.conv = norm, activation, conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, C, h, w). Returns what the convolution does."""
        if not self.synchronous:
            result: torch.Tensor = self.conv(self.activation(self.norm(x)))
            return result
        x, halos = self.norm.with_halos(x)
        result = self.conv(self.activation(x), self.activation(halos))
        return result
