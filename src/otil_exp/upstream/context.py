"""Layer context in flat buffers: kept and handed out, or sent in encoded bytes, instead of as distrifuser does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.forecast import ContextForecast
from otil_exp.upstream.imports import BaseModule, PatchParallelismCommManager


class Waiting(Protocol):
    """Something on its way."""

    def wait(self) -> None:
        """Have it arrive."""


class Coded(Protocol):
    """Who sends context in encoded bytes, and keeps what all ranks hold of it."""

    nothing_held: bool
    """Whether the next step is the first of a picture."""

    def send(self, start: int, end: int, fresh: torch.Tensor, *, at_once: bool = False) -> Waiting:
        """Send elements start to end of the own context, (end - start,). at_once: whether it is awaited right after."""


MakeCoded = Callable[[torch.Tensor], Coded]
"""Of what is held, (slices, n)."""


class ContextManager(PatchParallelismCommManager):
    """Context of one kind of layers: every slice's as last received, and this rank's own of this step.

    To a layer of a mode that is one step late (separate_gn, sync_gn) it is the manager it asks for peers' context and
    hands its own to; but it sends nothing. Who sends what of it is an exchange's business.
    """

    buffers: torch.Tensor
    """(slices, n), n elements of all registered layers, one after the other."""

    fresh: torch.Tensor
    """(n,): what this rank's layers handed over in the last step that was not synchronous."""

    handles: list[Waiting | None]
    """Of each layer: its exchange that is under way."""

    idx_queue: list[int]
    """Layers whose context waits to be sent together."""

    forecast: ContextForecast | None = None
    """Where layers read a forecast of the buffers; None where they read them as they are."""

    def create_buffer(self) -> None:
        config = self.distri_config
        self.buffers = torch.zeros(config.n_device_per_batch, self.numel, dtype=self.torch_dtype, device=config.device)
        self.fresh = torch.zeros_like(self.buffers[0])
        self.buffer_list = list(self.buffers.unbind(0))
        self.handles = [None] * len(self.starts)

    def enqueue(self, idx: int, tensor: torch.Tensor) -> None:
        self.fresh[self.starts[idx] : self.ends[idx]].view(self.shapes[idx]).copy_(tensor)


class CodedManager(ContextManager):
    """Context that is sent in encoded bytes, at once or a step late.

    `buffers` is what all ranks hold, the own slice's as the others do; the layers find their own in `fresh`, as it is.
    """

    def __init__(self, config: RankConfig, make: MakeCoded, *, holds: bool) -> None:
        """holds: whether an exchange sends what is late, and not this manager."""
        super().__init__(config)
        self._make, self._holds = make, holds
        self.coded: Coded | None = None

    def create_buffer(self) -> None:
        super().create_buffer()
        self.buffer_list[self.distri_config.split_idx()] = self.fresh
        self.coded = self._make(self.buffers)

    def enqueue(self, idx: int, tensor: torch.Tensor) -> None:
        if self._holds:
            super().enqueue(idx, tensor)
        else:
            PatchParallelismCommManager.enqueue(self, idx, tensor)  # fills `fresh`, and says when to communicate

    def communicate(self) -> None:
        """Send what is queued, without waiting."""
        arrival = self._send(self.idx_queue[0], self.idx_queue[-1])
        for idx in self.idx_queue:
            self.handles[idx] = arrival
        self.idx_queue = []

    def gather(self, idx: int, own: torch.Tensor) -> None:
        """Exchange the context of one layer, and wait for it."""
        ContextManager.enqueue(self, idx, own)
        self._send(idx, idx, at_once=True).wait()

    def _send(self, first: int, last: int, *, at_once: bool = False) -> Waiting:
        assert self.coded is not None, "buffers come first"
        start, end = self.starts[first], self.ends[last]
        return self.coded.send(start, end, self.fresh[start:end], at_once=at_once)


class LayerContext:
    """Stands in a layer's config for the group of ranks, so that a synchronous step exchanges its context through its
    manager (patch `context_gather`)."""

    def __init__(self, layer: BaseModule) -> None:
        self._layer = layer

    def gather_context(self, own: torch.Tensor) -> None:
        """Put every slice's context of this layer, and the own one (of any shape), where the layer looks for it."""
        self._layer.comm_manager.gather(self._layer.idx, own)
