"""Which process of a machine compiles first what several need: the others find it in the store of graphs.

They agree by locks on files of the temporary folder. Where such a file cannot be made, everybody compiles.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from otil_exp.topology import RankContext

AHEAD_S = 300.0
"""Bound on waiting for the process that compiles ahead, which takes a minute or two."""

LOOK_S = 0.1
"""Seconds between looks at whether it has ended."""

JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
"""Variables that tell jobs of one user on a machine apart: where their ranks meet, which may be the same place, one job
after the other, and the name that PyTorch's starter gave them."""

_DONE = b"done"

_log = logging.getLogger(__name__)


@contextmanager
def compile_turn(ranks: RankContext, *, communicates: bool) -> Iterator[None]:
    """One rank of a machine first: it compiles, the others then find what it compiled.

    Only where the graphs are the same code: on a GPU that is cuda:0 for every rank. A graph with collectives
    (communicates) no rank can run alone. Not a barrier: waiting must not count against collective_timeout_s.
    """
    on_cpu = ranks.device.type == "cpu"
    if communicates or not (on_cpu or (ranks.topology.world_size > 1 and _sees_one_gpu())):
        yield
        return
    with ExitStack() as held:
        try:
            # On a CPU all ranks of a user share the cores; on GPUs only those of one job have the same graphs.
            lock = held.enter_context(_opened(_lock_file("compile" if on_cpu else f"compile-{_job()}")))
            _wait_for_turn(lock, together=not on_cpu)
        except OSError as error:
            _log.warning("ranks compile all at once, each for itself, which takes longer: %s", error)
        yield


def _wait_for_turn(lock: IO[bytes], *, together: bool) -> None:
    """together: whether those who wait go on at the same time, since they find what the first one compiled."""
    if not _took(lock, fcntl.LOCK_EX):
        fcntl.flock(lock, fcntl.LOCK_SH if together else fcntl.LOCK_EX)


@dataclass
class _Looking:
    """What a rank knows of the process that compiles ahead for the cell that it makes ready."""

    done: bool | None = None
    """Whether it has compiled everything; None: nobody has looked. A rank waits once."""


_looking: _Looking | None = None
"""None: nobody compiles ahead of this process. A file that says otherwise was left by another cell or job."""


@contextmanager
def looking_ahead() -> Iterator[None]:
    """Within it another process may compile ahead, and `compiled_ahead` says whether it has."""
    global _looking
    assert _looking is None, "a rank makes one cell ready at a time"
    _looking = _Looking()
    try:
        yield
    finally:
        _looking = None


def take_ahead(ranks: RankContext) -> IO[bytes] | None:
    """The lock of the process that compiles ahead for the ranks of one half on this machine; None: another has it.

    It is held until the last process that has the file closes it. Call it before `compiled_ahead`, on every rank: what
    the file said before is gone then. Raises OSError where there can be no such file.
    """
    lock = _opened(_ahead_file(ranks))
    with ExitStack() as unless_taken:
        unless_taken.enter_context(lock)
        if not _took(lock, fcntl.LOCK_EX):
            return None
        lock.truncate()
        unless_taken.pop_all()
    return lock


def say_done(lock: IO[bytes]) -> None:
    """What was to be compiled ahead is in the store."""
    lock.write(_DONE)
    lock.flush()


def compiled_ahead(ranks: RankContext) -> bool:
    """Wait until nobody compiles ahead any more, at most AHEAD_S; whether somebody has.

    The first answer within `looking_ahead` stays; outside of it nobody has.
    """
    if _looking is None:
        return False
    if _looking.done is None:
        _looking.done = _wait_for_done(ranks)
    return _looking.done


def _wait_for_done(ranks: RankContext) -> bool:
    try:
        with _ahead_file(ranks).open("rb") as lock:
            deadline = time.monotonic() + AHEAD_S
            while not _took(lock, fcntl.LOCK_SH):
                if time.monotonic() > deadline:
                    return False
                time.sleep(LOOK_S)
            return lock.read() == _DONE
    except OSError:  # where there are no such files, take_ahead has said so
        return False


def _took(lock: IO[bytes], kind: int) -> bool:
    """Take a lock, shared or for oneself, if it can be had at once; whether it could."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sees_one_gpu() -> bool:
    return torch.cuda.device_count() == 1


def _ahead_file(ranks: RankContext) -> Path:
    return _lock_file(f"ahead-{_job()}-{ranks.batch_half}")


def _lock_file(what: str) -> Path:
    return Path(tempfile.gettempdir(), f"otil_exp-{what}-{os.getuid()}.lock")


def _opened(path: Path) -> IO[bytes]:
    """A lock file, made where it is not there, with what it says. Programs that this process starts do not get it."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")


def _job() -> str:
    """16 hex digits: of this job on this machine, which may share the temporary folder with others."""
    where = [platform.node(), *(os.environ.get(name, "") for name in JOB)]
    return hashlib.sha256("\n".join(where).encode()).hexdigest()[:16]
