"""How many CPU threads a rank may use."""

from __future__ import annotations

import os


def threads_per_rank(asked: int | None, local_ranks: int) -> int:
    """What was asked for, else OMP_NUM_THREADS, else an equal share of the cores this process may use; at least 1."""
    if asked is not None:
        return max(1, asked)
    if os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // local_ranks)
