"""Microseconds of a call among others of its kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from benchmarks.small_calls.case import ON_CPU

ROUNDS, REPLAYS = 9, 3

AWAKE_S = 1.0
"""Of work before anything is timed."""


def microseconds(calls: Sequence[Callable[[], Tensor]]) -> float:
    """Of one of the calls, which take turns in one CUDA graph: median of rounds."""
    if ON_CPU:
        start = time.perf_counter()
        calls[0]()
        return 1e6 * (time.perf_counter() - start)
    for call in calls[:3]:
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / REPLAYS / len(calls))
    return median(times)


def wake() -> None:
    """Keep the GPU busy until its clocks are up."""
    matrix, awake = torch.zeros(4096, 4096, dtype=torch.float16, device="cuda"), time.monotonic() + AWAKE_S
    while time.monotonic() < awake:
        matrix @ matrix
        torch.cuda.synchronize()


def largest_error(found: Tensor, expected: Tensor) -> float:
    """As a part of the largest expected value. expected: float64."""
    assert found.shape == expected.shape
    return ((found.double() - expected).abs().max() / expected.abs().max()).item()
