"""A lock that a process holds while it lives, and that says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_S = 0.5
"""Seconds between looks at a lock that somebody else holds."""


class BusyError(ValueError):
    """Somebody else holds a lock; its words say who."""


@contextmanager
def held(path: Path, wait_s: float = 0.0, say: Callable[[str], object] = lambda holder: None) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be, for the length of the block.

    wait_s: how long somebody else may hold it first; say: is told once who does, before we wait.
    Raises BusyError when they still do after that, ValueError, with what to type, where files cannot be locked.
    """
    deadline = time.monotonic() + wait_s
    with path.open("a+", encoding="utf-8") as file:
        told = False
        while not _taken(file.fileno(), path):
            if time.monotonic() >= deadline:
                raise BusyError(_holder(path))
            if not told:
                say(_holder(path))
                told = True
            time.sleep(LOOK_S)
        file.truncate(0)
        file.write(_myself())
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a process that lives holds the lock of a file."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            return not _taken(file.fileno(), path)
    except OSError:  # there is no such lock
        return False


def _taken(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        raise ValueError(
            f"output_dir: files of {path.parent} cannot be locked ({error.strerror}), and unlocked two processes would "
            "run one cell: use output_dir=FOLDER on a file system with flock (Lustre: mounted with -o flock)"
        ) from error
    return True


def _myself() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    if (array := os.environ.get("SLURM_ARRAY_JOB_ID")) is not None:
        job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    return f"{f'job {job}' if job else f'process {os.getpid()}'} on {platform.node()}"


def _holder(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
