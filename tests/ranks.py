"""Start real ranks (processes joined by gloo) for a test, and always end them.

    from ranks import run_ranks

    def shout(rank, word):
        total = torch.ones(1)
        dist.all_reduce(total)
        return word * int(total)

    def test_every_rank_counts_all_ranks():
        assert run_ranks(2, shout, "a") == ["aa", "aa"]

The function must be importable (module level), since each rank is a fresh process.
"""

from __future__ import annotations

import gc
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import multiprocessing as mp

PRELOADED = [
    *("torch.distributed", "torch._dynamo", "pytest", "diffusers.guiders"),
    *("otil_exp.pipeline", "otil_exp.upstream.layers", "otil_exp.cells.normal_form"),
    *(f"otil_exp.methods.{room}.step" for room in ("context_blocks", "exchanging_layers", "fold", "tensor")),
]
"""Ranks fork from a server that has loaded what they import and run nothing: safe like spawn, and seconds faster."""


def run_ranks(world_size: int, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
    """Call `function(rank, *args)` on `world_size` gloo ranks; return what they returned, in rank order.

    Arguments and return values are pickled (return CPU tensors). A rank that raises ends the others and raises
    ProcessRaisedException here, with the rank and its traceback; one that dies raises ProcessExitedException.
    Ranks that still run after `timeout` seconds are killed and named by TimeoutError. On a loaded machine gloo at times
    loses a connection while ranks meet, before the function is called: that is tried again, twice.
    """
    for attempt in (1, 2, 3):
        try:
            return _run_ranks(world_size, function, args, timeout)
        except mp.ProcessRaisedException as error:
            if attempt == 3 or NotMetError.__name__ not in str(error):
                raise
    raise AssertionError("the third attempt returns or raises")


class NotMetError(RuntimeError):
    """Ranks did not find each other."""


def _run_ranks(world_size: int, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> list[Any]:
    mp.get_context("forkserver").set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        context = mp.start_processes(
            _run_rank,
            args=(world_size, folder, dict(os.environ), timeout, function, args),
            nprocs=world_size,
            join=False,
            daemon=True,
            # The server's libraries may have looked for GPUs, and then what it forks cannot use one.
            start_method="spawn" if torch.cuda.is_available() else "forkserver",
        )
        deadline = time.monotonic() + timeout
        try:
            while not context.join(timeout=max(0.0, deadline - time.monotonic()), grace_period=1.0):
                if time.monotonic() >= deadline:
                    running = [rank for rank, process in enumerate(context.processes) if process.is_alive()]
                    raise TimeoutError(f"ranks {running} of {world_size} had not finished after {timeout:g} s")
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            raise error.with_traceback(None) from None  # torch's own frames say nothing about the rank
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        return [pickle.loads(_result_path(folder, rank).read_bytes()) for rank in range(world_size)]


def _run_rank(
    rank: int,
    world_size: int,
    folder: str,
    environment: dict[str, str],
    timeout: float,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    os.environ.update(environment)  # the server's dates from the first call; a test may have set variables since
    torch.set_num_threads(1)
    gc.freeze()  # what was loaded stays: the collector of garbage need not look through it
    # A file instead of a port: nothing to clash with when tests run side by side.
    store = dist.FileStore(str(Path(folder, "store")), world_size)
    bound = timedelta(seconds=max(timeout, 1.0))
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=bound)
    except RuntimeError as error:
        raise NotMetError(str(error)) from error
    result = function(rank, *args)
    _result_path(folder, rank).write_bytes(pickle.dumps(result))
    if dist.is_initialized():  # the function may have ended the group itself
        dist.destroy_process_group()


def _result_path(folder: str, rank: int) -> Path:
    return Path(folder, f"rank{rank}.pickle")
