"""Who runs a cell: one process at a time, named in the run folder's lock file for those who find it taken."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from otil_exp.run_folder.whole import make_writable

NAME = ".lock"

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""What flock answers on file systems that have no locks."""


class BusyError(ValueError):
    """Another process runs the cell."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    pid: int
    job: str | None = None
    """Its Slurm job; None outside of one."""

    @classmethod
    def this(cls) -> Owner:
        """This process."""
        return cls(platform.node(), os.getpid(), os.environ.get("SLURM_JOB_ID"))

    def __str__(self) -> str:
        job = f" of job {self.job}" if self.job else ""
        return f"process {self.pid}{job} on {self.host}"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; it goes with the process that holds it, however that ends.

    Raises BusyError, which names the owner, where another process has it, and ValueError, with what to type, where the
    folder cannot be written to or its file system has no locks.
    """
    make_writable(folder, "output_dir")
    with (folder / NAME).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{folder} is being run by {owner(folder) or 'another process'}") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise ValueError(
                f"output_dir: the file system of {folder} has no locks (flock: {error.strerror}), and without them two "
                "commands could run one cell at once; use output_dir=FOLDER on another one, or have this one mounted "
                "with them (Lustre: -o flock; NFS: without nolock, or with local_lock=flock)"
            ) from error
        file.truncate(0)
        file.write(json.dumps(asdict(Owner.this())))
        file.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock."""
    try:
        with (folder / NAME).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def owner(folder: Path) -> Owner | None:
    """Who holds, or held last, a folder's lock; None where that is not known."""
    try:
        return Owner(**json.loads((folder / NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
