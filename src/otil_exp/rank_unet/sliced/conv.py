"""Convolutions of a slice: the rows next to it come from the slices above and below."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from otil_exp.rank_unet.sliced.layer import SlicedLayer
from otil_exp.rank_unet.sliced.slices import Slices, edge_rows


class SlicedConv(SlicedLayer):
    """A 3x3 convolution with padding 1, stride 1 or 2, of a slice of rows.

    A convolution is linear, so a neighbour's row adds something to one output row: that is computed when the row
    arrives and added in every step, instead of copying activations and row together (modules/pp/conv2d.py:74).
    """

    top: torch.Tensor
    """(n, C', 1, w / stride): what the row above adds to the first output row."""
    bottom: torch.Tensor
    """What the row below adds to the last one; only with stride 1: with 2 the last output row ends with the slice."""

    def __init__(self, conv: nn.Conv2d, slices: Slices) -> None:
        super().__init__()
        assert (conv.kernel_size, conv.padding, conv.dilation) == ((3, 3), (1, 1), (1, 1)), f"{conv}"
        assert conv.groups == 1, f"{conv}"
        assert conv.stride in ((1, 1), (2, 2)), f"{conv}"
        self.conv, self._slices = conv, slices

    def forward(self, x: torch.Tensor, halos: torch.Tensor | None = None) -> torch.Tensor:
        """x: (n, C, h, w), h even for stride 2. Returns (n, C', h / stride, w / stride).

        halos: (2, n, C, 1, w), the rows above and below x, if a synchronous step need not exchange them.
        """
        if self.synchronous:
            self._renew(self._slices.halos(self._slices.gather(edge_rows(x))) if halos is None else halos)
        y: torch.Tensor = self.conv(x)
        row = torch.arange(y.shape[2], device=y.device).view(1, 1, -1, 1)
        y = torch.where(row == 0, y + self.top, y)
        if self.conv.stride == (1, 1):
            y = torch.where(row == y.shape[2] - 1, y + self.bottom, y)
        return y

    def _renew(self, halos: torch.Tensor) -> None:
        """Keep what the neighbours' rows add."""
        above, below = torch.where(self._slices.inside.view(2, 1, 1, 1, 1), halos, 0)
        stride = self.conv.stride[1]
        self._keep("top", F.conv2d(above, self.conv.weight[:, :, :1], stride=stride, padding=(0, 1)))
        if stride == 1:
            self._keep("bottom", F.conv2d(below, self.conv.weight[:, :, 2:], padding=(0, 1)))


class FirstConv(nn.Module):
    """The first convolution of a slice, whose input comes with the rows next to it (inputs.own_rows_and_next)."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        assert (conv.kernel_size, conv.padding, conv.stride) == ((3, 3), (1, 1), (1, 1)), f"{conv}"
        self.conv = conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, C, h + 2, w). Returns (n, C', h, w)."""
        return F.conv2d(x, self.conv.weight, self.conv.bias, padding=(0, 1))
