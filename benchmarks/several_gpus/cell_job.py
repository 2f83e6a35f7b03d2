"""A cell as a job: what a run does, with a halt of its ranks between the ready pipeline and its first picture."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.side_by_side import Files, Job
from otil_exp import job
from otil_exp.run_folder.cell import Cell

COMPILE_THREADS = "8"
"""Inductor's helpers of a rank; its own choice, one a core, is made for one rank a machine."""


class CellJob(Job):
    def __init__(self, cell: Cell, folder: Path) -> None:
        """folder: of the job's log; the ranks' are in the cell's."""
        super().__init__(cell.folder.path.name, folder, run_cell, cell)
        self.cell = cell

    @property
    def logs(self) -> list[Path]:
        """A rank that was ended in the middle of something says in its log where it was."""
        return [*super().logs, *sorted(self.cell.folder.logs.glob("rank*.log"))]


def run_cell(cell: Cell, files: Files) -> None:
    """What the process of a job does."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", COMPILE_THREADS)
    failures: dict[str, str] = {}
    job.Job(say=lambda words: print(words, flush=True), halt=files.halt).run([cell], failures)
    if failures:
        sys.exit("\n".join(failures.values()))
