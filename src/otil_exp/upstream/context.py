"""Layer context that is kept and handed out, instead of sent layer by layer as distrifuser does."""

from __future__ import annotations

import torch

from otil_exp.upstream.forecast import ContextForecast
from otil_exp.upstream.imports import PatchParallelismCommManager


class ContextManager(PatchParallelismCommManager):
    """Context of one kind of layers: every slice's as last received, and this rank's own of this step.

    To a layer of a mode that is one step late (separate_gn, sync_gn) it is the manager it asks for peers' context and
    hands its own to; but it sends nothing. Who sends what of it is an exchange's business.
    """

    buffers: torch.Tensor
    """(slices, n), n elements of all registered layers, one after the other."""

    fresh: torch.Tensor
    """(n,): what this rank's layers handed over in the last step that was not synchronous."""

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
