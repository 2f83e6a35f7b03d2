"""Which process of a machine compiles first what several need: the others find it in PyTorch's cache."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch

from otil_exp.topology import RankContext

AHEAD_S = 300.0
"""Bound on waiting for the process that compiles ahead, which takes a minute or two."""

LOOK_S = 0.1
"""Seconds between looks at whether it has ended."""

_DONE = b"done"


@contextmanager
def compile_turn(ranks: RankContext, *, communicates: bool) -> Iterator[None]:
    """One rank of a machine first: it compiles, the others then find what it compiled in the cache.

    Only where the graphs are the same code: on a GPU that is cuda:0 for every rank. A graph with collectives
    (communicates) no rank can run alone. Not a barrier: waiting must not count against collective_timeout_s.
    """
    on_cpu = ranks.device.type == "cpu"
    if communicates or not (on_cpu or (ranks.topology.world_size > 1 and _sees_one_gpu())):
        yield
        return
    with _lock_file("compile" if on_cpu else f"compile-{_job()}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody compiles: those who wait go on together
            fcntl.flock(lock, fcntl.LOCK_EX if on_cpu else fcntl.LOCK_SH)
        yield


def take_ahead(ranks: RankContext) -> IO[bytes] | None:
    """The lock of the process that compiles ahead for the ranks of one half on this machine; None: another has it.

    It is held until the last process that has the file closes it.
    """
    lock = os.fdopen(os.open(_ahead_file(ranks), os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    lock.truncate()
    return lock


def say_done(lock: IO[bytes]) -> None:
    """What was to be compiled ahead is in the cache."""
    lock.write(_DONE)
    lock.flush()


def compiled_ahead(ranks: RankContext) -> bool:
    """Wait until nobody compiles ahead any more, at most AHEAD_S; whether somebody has."""
    try:
        lock = _ahead_file(ranks).open("rb")
    except FileNotFoundError:
        return False
    with lock:
        deadline = time.monotonic() + AHEAD_S
        while not _is_free(lock):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return lock.read() == _DONE


def _is_free(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sees_one_gpu() -> bool:
    return torch.cuda.device_count() == 1


def _ahead_file(ranks: RankContext) -> Path:
    return _lock_file(f"ahead-{_job()}-{ranks.batch_half}")


def _lock_file(what: str) -> Path:
    """On a CPU all ranks of a user share the cores; on GPUs only those of one job have the same graphs."""
    return Path(tempfile.gettempdir(), f"otil_exp-{what}-{os.getuid()}.lock")


def _job() -> str:
    return os.environ.get("MASTER_PORT", "")
