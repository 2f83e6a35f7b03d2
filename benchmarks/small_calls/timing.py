"""Microseconds of a call among others of its kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks import replayed
from benchmarks.small_calls.case import ON_CPU

ROUNDS, REPLAYS = 9, 3

AWAKE_S = 1.0
"""Of work before anything is timed."""


def microseconds(calls: Sequence[Callable[[], Tensor]]) -> float:
    """Of one of the calls, which take turns in one CUDA graph; on a CPU of the first, once."""
    if ON_CPU:
        start = time.perf_counter()
        calls[0]()
        return 1e6 * (time.perf_counter() - start)
    return replayed.microseconds(calls, rounds=ROUNDS, replays=REPLAYS)


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
