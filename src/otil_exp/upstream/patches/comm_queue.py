"""A queue that holds every tensor of a step is sent at the end of that step."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from otil_exp.upstream.imports import PatchParallelismCommManager
from otil_exp.upstream.patches.replace import replaced


def comm_queue() -> AbstractContextManager[None]:
    """Send the queue with the step's last tensor if the step's first one is still in it.

    That is so when a model registers no more tensors than comm_checkpoint (60; SDXL has 109 or more, a small model
    fewer). Upstream then sends it at tensor 0 of the next step and overwrites slot 0 meanwhile (utils.py:183-187):
    peers receive either value, so that a seed has several pictures, and the first layer reads context that is two
    steps old instead of one. A longer queue is sent as upstream sends it.
    """
    enqueue = PatchParallelismCommManager.enqueue

    def enqueue_and_send(self: PatchParallelismCommManager, idx: int, tensor: torch.Tensor) -> None:
        enqueue(self, idx, tensor)
        if idx == len(self.starts) - 1 and self.idx_queue and self.idx_queue[0] == 0:
            self.communicate()

    return replaced(PatchParallelismCommManager, "enqueue", enqueue_and_send)
