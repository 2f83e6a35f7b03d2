"""Cells side by side on the same GPUs, a job each: all get ready at once, then one after the other is let go.

Getting a compiled cell ready is minutes of one core, so that many cells take hardly longer than one; what is timed
runs while the others only wait.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from otil_exp.cell import Cell
from otil_exp.launch import RankFailure, launch
from otil_exp.pipeline import RankPipeline, build_pipeline
from otil_exp.run import execution
from otil_exp.run.execution import RunSpec
from otil_exp.run.failure import note_failure
from otil_exp.topology import RankContext, meet

COMPILE_THREADS = "8"
"""Inductor's helpers of a rank; its own choice, one a core, is made for one rank a machine."""

END_S = 15.0


@dataclass(frozen=True)
class Files:
    """What a job and who started it tell each other."""

    stem: Path
    started: float

    @property
    def log(self) -> Path:
        return self.stem.with_suffix(".log")

    @property
    def ready(self) -> Path:
        """Seconds from the start of the job until all its ranks were ready."""
        return self.stem.with_suffix(".ready")

    @property
    def go(self) -> Path:
        return self.stem.with_suffix(".go")


@dataclass(frozen=True)
class Waiting:
    """A job that gets its cell ready, and waits."""

    cell: Cell
    files: Files
    process: SpawnProcess

    @property
    def ready_s(self) -> float | None:
        """Seconds until it was ready; None before that."""
        return float(self.files.ready.read_text()) if self.files.ready.exists() else None

    @property
    def preparing(self) -> bool:
        return self.ready_s is None and self.process.is_alive()

    def go(self, seconds: float) -> bool:
        """Let the cell run, for at most so many seconds; whether it was done in time."""
        self.files.go.touch()
        self.process.join(seconds)
        if self.process.is_alive():
            _end([self])  # the next one is to be timed alone
        return self.process.exitcode == 0

    @property
    def last_words(self) -> str:
        """The ends of its logs; a rank that was ended in the middle of something says there where it was."""
        logs = [self.files.log, *sorted(self.cell.folder.logs.glob("rank*.log"))]
        return "\n...\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())


@contextmanager
def side_by_side(cells: Sequence[Cell], folder: Path, seconds: float) -> Iterator[list[Waiting]]:
    """Start all cells, and hand their jobs over once each is ready, has failed, or has been ended for taking too long.

    folder: of logs. Ends, at the end, what still runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", COMPILE_THREADS)
    jobs = [_start(cell, folder) for cell in cells]
    try:
        deadline = time.monotonic() + seconds
        while any(job.preparing for job in jobs) and time.monotonic() < deadline:
            time.sleep(0.2)
        _end([job for job in jobs if job.preparing])
        yield jobs
    finally:
        _end(jobs)


def _start(cell: Cell, folder: Path) -> Waiting:
    files = Files(folder / cell.folder.path.name, time.time())
    for old in (files.ready, files.go):
        old.unlink(missing_ok=True)
    process = multiprocessing.get_context("spawn").Process(target=_job, args=(cell, files))
    process.start()
    return Waiting(cell, files, process)


def _end(jobs: list[Waiting]) -> None:
    """End jobs with their ranks, together; by force what does not end by itself."""
    for job in jobs:
        job.process.terminate()
    deadline = time.monotonic() + END_S
    for job in jobs:
        job.process.join(max(0.0, deadline - time.monotonic()))
        job.process.kill()
        job.process.join()


def _job(cell: Cell, files: Files) -> None:
    """The process of a job: starts the ranks of its cell."""
    with files.log.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    run = RunSpec(effective=cell.effective, composed=cell.composed, prompts=cell.prompts, folder=cell.folder)
    try:
        launch(_rank, cell.effective.topology.world_size, run, files, log_dir=cell.folder.logs, threads=1)
    except RankFailure as failure:
        note_failure(cell.folder, failure.rank, failure.reason, failure.traceback)
        raise


def _rank(run: RunSpec, files: Files) -> None:
    """A rank: what every rank of a run does, with a halt between the ready pipeline and its first picture."""

    def built(config: Any, ranks: RankContext, *models: Any, **options: Any) -> RankPipeline:
        pipeline = build_pipeline(config, ranks, *models, **options)
        meet()  # also so that no rank leaves the GPUs a collective that waits for another
        if ranks.is_main:
            beside = files.ready.with_suffix(".part")
            beside.write_text(f"{time.time() - files.started:.1f}")
            beside.rename(files.ready)
        while not files.go.exists():
            time.sleep(0.05)
        return pipeline

    execution.build_pipeline = built
    execution.execute([run], hosted=False)
