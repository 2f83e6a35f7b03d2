"""How long a call takes on the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch


def milliseconds(call: Callable[[], object], repeats: int, before: Callable[[], object] = lambda: None) -> float:
    """Median time of a call on the device, ms; all ranks make it together. before: done, untimed, before each."""
    for _ in range(3):
        call()
    samples = []
    for _ in range(repeats):
        before()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end))
    return round(statistics.median(samples), 4)
