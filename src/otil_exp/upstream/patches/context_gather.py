"""Layers leave it to the group of their config how a synchronous step exchanges their context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import distributed as dist

from otil_exp.upstream.imports import pp_attn, pp_conv2d
from otil_exp.upstream.patches.replace import replaced


@contextmanager
def context_gather() -> Iterator[None]:
    """Let the blocking all_gather of self-attention and convolution be done by their group, where that can.

    modules/pp/{attn,conv2d}.py call dist.all_gather in the middle of their forward. In these two modules the name
    `dist` becomes a stand-in; a layer whose distri_config.batch_group is a process group gets torch.distributed's.
    """
    with ExitStack() as stack:
        for module in (pp_attn, pp_conv2d):
            stack.enter_context(replaced(module, "dist", _Distributed))
        yield


class _Distributed:
    """What those modules use of torch.distributed."""

    @staticmethod
    def all_gather(received: list[torch.Tensor], own: torch.Tensor, *, group: Any, async_op: bool) -> None:
        if hasattr(group, "gather_context"):
            group.gather_context(own)
        else:
            dist.all_gather(received, own, group=group, async_op=async_op)
