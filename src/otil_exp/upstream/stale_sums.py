"""Tensor parallelism that does not wait: the sum over the ranks of a layer's partial sums, one step late.

Asked for in xDiT's issue 116 (2024) and refused there, because an all-reduce in flight yields only a sum that is all
stale. It yields more: a rank knows what it put into that sum, so it can take its old part out and put the new one in.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import distributed as dist

from otil_exp.choices import StaleSums, TensorLayers
from otil_exp.upstream.forecast import on_a_line
from otil_exp.upstream.imports import (
    BaseModule,
    DistriAttentionTP,
    DistriConv2dTP,
    DistriFeedForwardTP,
    DistriResnetBlock2DTP,
)

CLASSES: dict[TensorLayers, tuple[type[BaseModule], ...]] = {
    TensorLayers.attention: (DistriAttentionTP,),
    TensorLayers.feed_forward: (DistriFeedForwardTP,),
    TensorLayers.convolution: (DistriResnetBlock2DTP, DistriConv2dTP),
}
"""distrifuser's tensor-parallel layers by the name a user types."""


class LayerSum:
    """Adds up the partial sums of one layer over the ranks; after warm-up without waiting for this step's.

    By bytes an all-reduce beats an all_gather of the partial sums (2 (N - 1) / N of a sum to send instead of N - 1;
    the same at N = 2), and it keeps two tensors (StaleSums.peers) or one (all) instead of N. So it is an all-reduce:
    peers: sum of the step before + own partial sum now - own partial sum then. all: the sum of the step before. With a
    forecast the late part (the peers' sum, or the whole one) is carried on along the line of the last two; one more
    tensor.
    """

    def __init__(self, layer: BaseModule, stale: StaleSums, ahead: torch.Tensor | None = None) -> None:
        """layer: whose counter says whether a step is synchronous. ahead: of on_a_line; None for no forecast."""
        self._layer = layer
        self._stale = stale
        self._group = layer.distri_config.batch_group
        self._sum: torch.Tensor | None = None  # of the step before, or on its way there
        self._own: torch.Tensor | None = None  # this rank's part of it
        self._handle: Any = None
        self._ahead = ahead
        self._before: torch.Tensor | None = None  # the late part the step before

    def add_up(self, partial: torch.Tensor) -> None:
        """Put the sum over the ranks in place of this rank's partial sum, of any shape."""
        if self._layer.counter <= self._layer.distri_config.warmup_steps:
            self._reduce_now(partial)
        else:
            self._reduce_late(partial)

    def wait(self) -> None:
        """Finish the sum that is on its way."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None

    def _reduce_now(self, partial: torch.Tensor) -> None:
        self.wait()
        if self._sum is None:
            self._sum = torch.empty_like(partial, memory_format=torch.contiguous_format)
            self._own = torch.empty_like(self._sum) if self._stale is StaleSums.peers else None
            self._before = torch.zeros_like(self._sum) if self._ahead is not None else None
        elif self._before is not None:
            self._before.copy_(self._late())
        if self._own is not None:
            self._own.copy_(partial)
        dist.all_reduce(partial, group=self._group)
        self._sum.copy_(partial)

    def _reduce_late(self, partial: torch.Tensor) -> None:
        assert self._sum is not None, "a picture starts with a synchronous step"
        self.wait()
        if self._before is not None:
            late = self._carried_on(self._before)
            result = late if self._own is None else late + partial
        elif self._own is None:
            result = self._sum.clone()
        else:
            result = self._sum + (partial - self._own)
        if self._own is not None:
            self._own.copy_(partial)
        self._sum.copy_(partial)
        self._handle = dist.all_reduce(self._sum, group=self._group, async_op=True)
        partial.copy_(result)

    def _late(self) -> torch.Tensor:
        """What others put into the sum that is there, or the whole of it."""
        assert self._sum is not None
        return self._sum if self._own is None else self._sum - self._own

    def _carried_on(self, before: torch.Tensor) -> torch.Tensor:
        """The late part as it is expected now, a new tensor; what it was until now becomes what it was before."""
        assert self._ahead is not None
        late = self._late()
        now = on_a_line(late, before, self._ahead)
        before.copy_(late)
        return now


def make_stale(
    unet: UNet2DConditionModel,
    stale: StaleSums,
    layers: Sequence[TensorLayers],
    ahead: torch.Tensor | None = None,
) -> list[LayerSum]:
    """Let the given kinds of tensor-parallel layers of a UNet add up late; returns their sums, in the UNet's order.

    ahead: as of LayerSum.
    A layer hands its partial sum to the group of its own distri_config (patch `partial_sums`).
    """
    classes = tuple(cls for kind in layers for cls in CLASSES[kind])
    sums = []
    for layer in unet.modules():
        if isinstance(layer, classes):
            layer_sum = LayerSum(layer, stale, ahead)
            layer.distri_config = copy(layer.distri_config)
            layer.distri_config.batch_group = layer_sum
            sums.append(layer_sum)
    return sums
