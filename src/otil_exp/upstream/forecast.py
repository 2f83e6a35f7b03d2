"""What came late, carried on to now: a line through what came last and what came the time before (order 1).

One mechanism for both kinds of layers that do not wait: those of slices, whose peers' context is late, and those of
tensor parallelism, whose sums are. Costs the memory of the values before the last ones, and sends nothing. All of it is
tensor code at fixed addresses, so that steps can be replayed as CUDA graphs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from otil_exp.upstream.imports import DistriConv2dPP, DistriSelfAttentionPP, PatchParallelismCommManager


def on_a_line(last: Tensor, before: Tensor, ahead: Tensor) -> Tensor:
    """last + ahead * (last - before), of one shape and dtype; last itself to the last bit where ahead is 0.

    ahead: how far now lies beyond the last value, in distances of the two: () of any floating dtype, or of theirs.
    """
    return last + ahead * (last - before)


class ContextForecast:
    """What the buffers of a manager held the time before, and how far now lies beyond what they hold."""

    before: list[Tensor | None]
    """Of each slice (n,); None for the own one, whose context is never late."""

    ahead: list[Tensor]
    """Of each slice, () or, where an exchange renews blocks one by one, (n / run, 1)."""

    def __init__(self, manager: PatchParallelismCommManager, ahead: Tensor) -> None:
        """manager: with buffers. ahead: (), for all of them."""
        own = manager.distri_config.split_idx()
        self.before = [None if i == own else torch.zeros_like(one) for i, one in enumerate(manager.buffer_list)]
        self.ahead = [ahead] * len(self.before)
        self.run: int | None = None
        self._manager = manager

    def by_runs(self, run: int) -> None:
        """From now on each run of so many elements has its own age, and whoever renews it says what it was before."""
        self.run = run
        self.ahead = [one.new_zeros((len(one) // run, 1)) for one in self._manager.buffer_list]

    def attach(self, layers: nn.Module) -> None:
        """Let attention and convolutions of this manager read the forecast in steps that are late."""
        for layer in layers.modules():
            if isinstance(layer, DistriSelfAttentionPP | DistriConv2dPP) and layer.comm_manager is self._manager:
                layer.register_forward_pre_hook(self._hand_out)
                layer.register_forward_hook(self._take_back)

    def _hand_out(self, layer: Any, _: Any) -> None:
        if layer.buffer_list is None:  # it is registering, or gets its buffers in this call, a synchronous one
            return
        _wait_for_peers(layer)
        late = layer.counter > layer.distri_config.warmup_steps
        shown = [self._shown(layer, i) if late else one for i, one in enumerate(layer.buffer_list)]
        if self.run is None or not late:
            self._remember(layer)
        layer.buffer_list = shown

    def _take_back(self, layer: Any, *_: Any) -> None:
        if layer.buffer_list is not None:
            layer.buffer_list = self._manager.get_buffer_list(layer.idx)

    def _shown(self, layer: Any, index: int) -> Tensor:
        """What a layer reads of a slice's context, of the shape it has."""
        last, before, ahead = layer.buffer_list[index], self.before[index], self.ahead[index]
        if before is None:
            return last
        start, end = self._manager.starts[layer.idx], self._manager.ends[layer.idx]
        if self.run is None:
            return on_a_line(last, before[start:end].view_as(last), ahead)
        runs = (last.reshape(-1, self.run), before[start:end].view(-1, self.run))
        return on_a_line(*runs, ahead[start // self.run : end // self.run]).view_as(last)

    def _remember(self, layer: Any) -> None:
        start, end = self._manager.starts[layer.idx], self._manager.ends[layer.idx]
        for last, before in zip(layer.buffer_list, self.before, strict=True):
            if before is not None:
                before[start:end].view_as(last).copy_(last)


def _wait_for_peers(layer: Any) -> None:
    """Finish the exchange that was started for this layer in the step before, as its own forward does first."""
    handles = layer.comm_manager.handles
    if handles[layer.idx] is not None:
        handles[layer.idx].wait()
        handles[layer.idx] = None
