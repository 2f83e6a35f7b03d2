"""How a rank imports: torch, diffusers and what they load are thousands of modules."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Import within it: Python's garbage collector does not run, and leaves out for good what is there afterwards.

    It runs the more often the more objects are made, and would look through millions that a process keeps to its end: a
    sixth of the time of a rank's imports (benchmarks/one_gpu_speed.md).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
