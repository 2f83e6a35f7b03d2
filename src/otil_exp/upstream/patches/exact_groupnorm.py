"""GroupNorm over all slices with the statistics that one process computes."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import distributed as dist

from otil_exp.rank_unet.statistics import combined, corrected, normalised, slice_statistics
from otil_exp.upstream.imports import DistriGroupNorm
from otil_exp.upstream.patches.replace import replaced


def exact_groupnorm() -> AbstractContextManager[None]:
    """Replace the arithmetic of distrifuser's GroupNorm (modules/pp/groupnorm.py) in all of its modes.

    Upstream squares in the activation dtype (:40, :77), so that fp16 overflows at |x| >= 256 and a large mean swallows
    the variance, and scales the variance by n / (n - 1) with the local n (:65, :84), so that even its synchronous mode
    differs from one process. Here statistics are a mean and a biased variance in fp32 (`statistics`). Which steps
    exchange, and what is stale, is upstream's. The layers' comm_manager must hold fp32: not the one of fp16 layers.
    """
    return replaced(DistriGroupNorm, "forward", _forward)


def _forward(self: DistriGroupNorm, x: torch.Tensor) -> torch.Tensor:
    """x: (n, C, h, w) of this rank's slice. Returns the same shape and dtype."""
    config = self.distri_config
    synchronous = self.counter <= config.warmup_steps or config.mode in ("full_sync", "sync_gn")
    if config.mode in ("stale_gn", "corrected_async_gn"):
        output = normalised(x, *_through_buffers(self, x, synchronous), self.module)
    elif synchronous:
        own = slice_statistics(x, self.module.num_groups)
        slices = [torch.empty_like(own) for _ in range(config.n_device_per_batch)]
        dist.all_gather(slices, own, group=config.batch_group)
        output = normalised(x, *combined(torch.stack(slices)), self.module)
    else:
        output = self.module(x)
    self.counter += 1
    return output


def _through_buffers(layer: DistriGroupNorm, x: torch.Tensor, synchronous: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance (n, groups) of the modes that keep every slice's statistics from one step to the next."""
    config, own = layer.distri_config, slice_statistics(x, layer.module.num_groups)
    _wait_for_peers(layer)
    received = _received(layer, own)
    if received is None:
        return own[0], own[1]
    if synchronous:
        dist.all_gather(received, own, group=config.batch_group)
        return combined(torch.stack(received))
    stale, index = torch.stack(received), config.split_idx()
    layer.comm_manager.enqueue(layer.idx, own)
    if config.mode == "corrected_async_gn":
        return corrected(stale, own, stale[index])
    stale[index] = own
    return combined(stale)


def _wait_for_peers(layer: DistriGroupNorm) -> None:
    """Finish the exchange that was started for this layer in the step before, if there was one."""
    handles = layer.comm_manager.handles
    if handles is not None and layer.idx is not None and handles[layer.idx] is not None:
        handles[layer.idx].wait()
        handles[layer.idx] = None


def _received(layer: DistriGroupNorm, own: torch.Tensor) -> list[torch.Tensor] | None:
    """Every slice's statistics as last received; None in the first pass, which only registers the layer's shape."""
    if layer.buffer_list is None:
        if layer.comm_manager.buffer_list is None:
            layer.idx = layer.comm_manager.register_tensor(
                shape=list(own.shape), torch_dtype=own.dtype, layer_type="gn"
            )
        else:
            layer.buffer_list = layer.comm_manager.get_buffer_list(layer.idx)
    received: list[torch.Tensor] | None = layer.buffer_list
    return received
