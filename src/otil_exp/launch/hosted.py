"""Run in this process, which torchrun or a scheduler has made one of the ranks."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from otil_exp.launch.collective import explained_timeouts
from otil_exp.launch.environment import Place
from otil_exp.launch.threads import threads_per_rank
from otil_exp.rank_log import log_to, open_log

T = TypeVar("T")

_hosted = False


def run_here(
    place: Place,
    function: Callable[..., T],
    world_size: int,
    *args: object,
    log_dir: Path | None,
    threads: int | None,
) -> T | None:
    """Call `function(*args)` as the rank at `place`; return what it returned on rank 0, None elsewhere.

    Whoever started this process decides where its output goes and what happens to the other ranks when it fails; its
    logging and traceback are copied to log_dir/rank<r>.log. torchrun gets the exception for its report.

    Raises what the function raises; ValueError when the number of ranks is not the topology's; RuntimeError when this
    process has hosted a run before: a process group is made once in a process.
    """
    global _hosted
    place.check(world_size)
    if _hosted:
        raise RuntimeError(
            f"this rank of {place.starter} has hosted a run already, and every run needs fresh processes: start one "
            "run a job, or leave it to `otil-exp -m ...` to start the ranks"
        )
    _hosted = True
    threads = threads_per_rank(threads or place.cpus, place.local_world_size)
    os.environ.update(place.variables() | {"OMP_NUM_THREADS": str(threads)})
    torch.set_num_threads(threads)
    log = open_log(log_dir, place.rank) if log_dir is not None else None
    if log is not None:
        log_to(log.stream, place.rank)
    try:
        result = record(explained_timeouts()(function))(*args)
    except Exception:
        if log is not None:
            traceback.print_exc(file=log.stream)
        raise
    return result if place.rank == 0 else None
