"""Jobs side by side on the same GPUs: all get ready at once, then one after the other is let go.

Getting ready is compiling, minutes of one core, so that many jobs take hardly longer than one; what is timed runs while
the others only wait.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from otil_exp.launch.lifetime import die_with_parent
from otil_exp.run.halt import FileHalt

HALT_S = 3600.0
"""Bound on a job's turn: who started it ends it long before."""

END_S = 15.0
"""Bound on ending by itself."""

LAST_WORDS = 3000
"""Characters of a log."""


@dataclass
class Files:
    """What a job and who started it tell each other: any process of the job may speak for it."""

    folder: Path
    name: str
    started: float = 0.0

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.name}.{suffix}"

    @property
    def log(self) -> Path:
        return self.path("log")

    @property
    def halt(self) -> FileHalt:
        """Where the job says that it is ready, and waits."""
        return FileHalt(self.path("ready"), self.path("go"), HALT_S)


class Job:
    """A process that calls `function(*arguments, files)`: gets ready, says so, waits, and then does what is timed."""

    def __init__(self, name: str, folder: Path, function: Callable[..., None], *arguments: Any) -> None:
        """name: of its files in the folder. function: of a module; arguments: picklable."""
        self.name = name
        self.files = Files(folder, name)
        self.process: SpawnProcess | None = None
        self._call = (function, arguments)

    def start(self) -> None:
        self.files.folder.mkdir(parents=True, exist_ok=True)
        self.files.log.unlink(missing_ok=True)
        self.files.halt.clear()
        self.files.started = time.time()
        # Pickled apart: what its import says, or fails with, is to be in the log.
        arguments = (pickle.dumps(self._call), self.files)
        self.process = get_context("spawn").Process(target=_perform, args=arguments, name=self.name)
        self.process.start()

    @property
    def ready_s(self) -> float | None:
        """Seconds until it was ready; None before that."""
        at = self.files.halt.ready_at
        return None if at is None else round(at - self.files.started, 1)

    @property
    def preparing(self) -> bool:
        return self.ready_s is None and self.process is not None and self.process.is_alive()

    def go(self, seconds: float) -> bool:
        """Let it go on, for at most so many seconds; whether it was done in time."""
        assert self.process is not None, "it has not been started"
        self.files.halt.let_go()
        self.process.join(seconds)
        if self.process.is_alive():
            _end([self])  # the next one is to be timed alone
        return self.process.exitcode == 0

    @property
    def logs(self) -> list[Path]:
        return [self.files.log]

    @property
    def last_words(self) -> str:
        """The ends of its logs."""
        return "\n...\n".join(log.read_text(errors="replace")[-LAST_WORDS:] for log in self.logs if log.exists())


@contextmanager
def side_by_side(jobs: Sequence[Job], seconds: float) -> Iterator[None]:
    """Start all jobs, and go on once each is ready, has failed, or has been ended for not being ready in time.

    Ends, at the end, what still runs.
    """
    try:
        for job in jobs:
            job.start()
        deadline = time.monotonic() + seconds
        while any(job.preparing for job in jobs) and time.monotonic() < deadline:
            time.sleep(0.2)
        _end([job for job in jobs if job.preparing])
        yield
    finally:
        _end(jobs)


def _perform(call: bytes, files: Files) -> None:
    """The process of a job."""
    die_with_parent(parent_process().pid)  # nobody else would let it go on
    with files.log.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    function, arguments = pickle.loads(call)
    function(*arguments, files)


def _end(jobs: Sequence[Job]) -> None:
    """End jobs, together; by force those that do not end by themselves."""
    processes = [job.process for job in jobs if job.process is not None]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + END_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()
