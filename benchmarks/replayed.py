"""Microseconds of calls that are recorded in one CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch


def microseconds(calls: Sequence[Callable[[], object]], *, rounds: int, replays: int) -> float:
    """Of one of the calls, which take turns in the graph: median of rounds, each the mean of its replays."""
    for call in calls[:3]:  # libraries start up here, which a capture could not bear
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / replays / len(calls))
    return median(times)
