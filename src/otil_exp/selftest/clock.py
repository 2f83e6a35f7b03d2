"""How long a call takes on a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

UNTIMED = 3
"""Calls before the timed ones: libraries start up."""


def milliseconds(
    call: Callable[[], object], repeats: int, device: torch.device, before: Callable[[], object] = lambda: None
) -> float:
    """Median time of a call, ms: between events on a GPU, by the host's clock on a CPU.

    before: done, untimed, before each call; a barrier where ranks make the call together.
    """
    for _ in range(UNTIMED):
        call()
    return statistics.median(_timed(call, device, before) for _ in range(repeats))


def _timed(call: Callable[[], object], device: torch.device, before: Callable[[], object]) -> float:
    before()
    if device.type != "cuda":
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)
    torch.cuda.synchronize(device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end)
