"""Locks that a process holds while it lives, and that say who holds them: of a cell, and of a grid's ledger of jobs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from otil_exp.run_folder.whole import make_writable

NAME = ".lock"
"""File of a run folder that whoever runs its cell holds."""

LOOK_S = 0.5
"""Seconds between looks at a lock that somebody else holds."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""What flock answers on file systems that have no locks."""


class BusyError(ValueError):
    """Somebody else holds a lock; its words say who."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    pid: int
    job: str | None = None
    """Its Slurm job, 21_3 for one of an array; None outside of one."""

    @classmethod
    def this(cls) -> Owner:
        """This process."""
        job = os.environ.get("SLURM_JOB_ID")
        if (array := os.environ.get("SLURM_ARRAY_JOB_ID")) is not None:
            job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
        return cls(platform.node(), os.getpid(), job)

    def __str__(self) -> str:
        job = f" of job {self.job}" if self.job else ""
        return f"process {self.pid}{job} on {self.host}"


@contextmanager
def held(path: Path, wait_s: float = 0.0, say: Callable[[str], object] = lambda owner: None) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be; it goes with the process that holds it, however that ends.

    wait_s: how long somebody else may hold it first; say: is told once who does, before we wait.
    Raises BusyError when they still do after that, ValueError, with what to type, on a file system without locks.
    """
    deadline, told = time.monotonic() + wait_s, False
    with path.open("a+", encoding="utf-8") as file:
        while not _taken(file.fileno(), path):
            by = str(owner(path) or "another process")
            if time.monotonic() >= deadline:
                raise BusyError(by)
            if not told:
                say(by)
                told = True
            time.sleep(LOOK_S)
        file.truncate(0)
        file.write(json.dumps(asdict(Owner.this())))
        file.flush()
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder's lock.

    Raises BusyError, which names the owner, where another process has it, and ValueError, with what to type, where the
    folder cannot be written to or its file system has no locks.
    """
    make_writable(folder, "output_dir")
    with ExitStack() as lock:
        try:
            lock.enter_context(held(folder / NAME))
        except BusyError as busy:
            raise BusyError(f"{folder} is being run by {busy}") from busy
        yield


def is_held(path: Path) -> bool:
    """Whether a process that lives holds the lock of a file."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            return not _taken(file.fileno(), path)
    except OSError:  # there is no such lock
        return False


def is_locked(folder: Path) -> bool:
    """Whether a process holds a run folder's lock."""
    return is_held(folder / NAME)


def owner(path: Path) -> Owner | None:
    """Who holds, or held last, the lock of a file; None where that is not known."""
    try:
        return Owner(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _taken(descriptor: int, path: Path) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise ValueError(
            f"output_dir: the file system of {path.parent} has no locks (flock: {error.strerror}), and without them "
            "two commands could run one cell at once; use output_dir=FOLDER on another one, or have this one mounted "
            "with them (Lustre: -o flock; NFS: without nolock, or with local_lock=flock)"
        ) from error
    return True
