"""The one collective everything here is made of."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist


def gather(own: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Collect a tensor of the same shape from every rank of the group: (...) to (ranks, ...), in the group's order.

    One all_gather; group None is the default group. Called through `dist` at call time, so that a counter put on
    torch.distributed sees it.
    """
    collected = own.new_empty((dist.get_world_size(group), *own.shape))
    # Into a list of views: gloo on CUDA tensors takes it, and all_gather_into_tensor is deprecated since torch 2.14.
    dist.all_gather(list(collected.unbind(0)), own.contiguous(), group=group)
    return collected
