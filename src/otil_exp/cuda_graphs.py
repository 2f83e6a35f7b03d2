"""Calls recorded as CUDA graphs: many small kernels handed over by one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Captured:
    """A recorded call."""

    replay: Callable[[], Any]
    output: torch.Tensor
    """Where each replay leaves its result."""


Record = Callable[[Callable[[], torch.Tensor]], Captured]
"""Makes a graph of a call, which it may run and which must work on tensors that stay where they are."""


class CudaGraphRecorder:
    """Records calls as CUDA graphs that share one memory pool: they are replayed one after the other."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, call: Callable[[], torch.Tensor]) -> Captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = call()
        return Captured(graph.replay, output)
