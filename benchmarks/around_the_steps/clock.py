"""Times of a call and what it holds on to."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor


def wait() -> None:
    """Until the GPU, where there is one, has done all it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def times_ms(run: Callable[[], object], repeats: int = 7) -> dict[str, float]:
    """Medians over calls on an idle device: until the call returns (host_ms), until its work is done (ms)."""
    run()
    host, whole = [], []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        run()
        host.append(time.perf_counter() - start)
        wait()
        whole.append(time.perf_counter() - start)
    return {"host_ms": 1e3 * median(host), "ms": 1e3 * median(whole)}


def reserved_mib() -> float:
    """GPU memory that the allocator holds, without what nobody uses."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 2**20


def furthest(ours: list[Tensor], theirs: list[Tensor]) -> dict[str, float]:
    """The largest difference of an element, and the largest element; NaN where there is one."""
    off_by = torch.stack([(one.float() - other.float()).abs().max() for one, other in zip(ours, theirs, strict=True)])
    largest = torch.stack([other.float().abs().max() for other in theirs])
    return {"off_by": float(off_by.max()), "largest": float(largest.max())}
