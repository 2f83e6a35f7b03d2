"""A layer's slot is not overwritten while it is being sent."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from otil_exp.upstream.imports import PatchParallelismCommManager
from otil_exp.upstream.patches.replace import replaced


def comm_queue() -> AbstractContextManager[None]:
    """Wait for the last step's unsent tensors before the first tensor of a new step is put into the queue.

    At tensor 0, utils.py:183-187 starts an asynchronous all_gather of what the queue still holds and then overwrites
    slot 0. When slot 0 itself is in the queue (no more tensors than comm_checkpoint) peers receive either value:
    the same seed gives different pictures.
    """
    enqueue = PatchParallelismCommManager.enqueue

    def enqueue_after_sending(self: PatchParallelismCommManager, idx: int, tensor: torch.Tensor) -> None:
        if idx == 0 and self.idx_queue:
            self.communicate()
            if self.handles[0] is not None:
                self.handles[0].wait()
                self.handles[0] = None
        enqueue(self, idx, tensor)

    return replaced(PatchParallelismCommManager, "enqueue", enqueue_after_sending)
