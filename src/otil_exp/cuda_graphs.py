"""Calls recorded as CUDA graphs: many small kernels handed over by one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

Result = TypeVar("Result")
"""A tensor, or something with tensors in it."""


@dataclass(frozen=True)
class Captured(Generic[Result]):
    """A recorded call."""

    replay: Callable[[], Any]
    output: Result
    """What the call returned: each replay leaves its results in the same tensors."""


class Record(Protocol):
    """Makes a graph of a call, which it may run and which must work on tensors that stay where they are."""

    def __call__(self, call: Callable[[], Result], /) -> Captured[Result]: ...


class CudaGraphRecorder:
    """Records calls as CUDA graphs that share one memory pool: they are replayed one after the other."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, call: Callable[[], Result], /) -> Captured[Result]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = call()
        return Captured(graph.replay, output)
