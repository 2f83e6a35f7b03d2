"""Tensor-parallel layers leave it to the group of their config how partial sums are added up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import distributed as dist

from otil_exp.upstream.imports import tp_modules
from otil_exp.upstream.patches.replace import replaced


@contextmanager
def partial_sums() -> Iterator[None]:
    """Let the all_reduce of a tensor-parallel layer be done by its group, where that can `add_up`.

    modules/tp/{attention,conv2d,feed_forward,resnet}.py call dist.all_reduce, blocking, in the middle of their forward.
    In these four modules the name `dist` becomes a stand-in; a layer whose distri_config.batch_group is a process group
    gets torch.distributed's all_reduce as before.
    """
    with ExitStack() as stack:
        for module in tp_modules:
            stack.enter_context(replaced(module, "dist", _Distributed))
        yield


class _Distributed:
    """What those modules use of torch.distributed."""

    ReduceOp = dist.ReduceOp

    @staticmethod
    def all_reduce(tensor: torch.Tensor, *, op: Any, group: Any, async_op: bool) -> None:
        if hasattr(group, "add_up"):
            group.add_up(tensor)
        else:
            dist.all_reduce(tensor, op=op, group=group, async_op=async_op)
