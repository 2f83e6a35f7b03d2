"""A cell as a job: what a run does, with a halt of its ranks between the ready pipeline and its first picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import Files, Job
from otil_exp.launch import RankFailure, launch
from otil_exp.pipeline import RankPipeline, build_pipeline
from otil_exp.run import execution
from otil_exp.run.failure import note_failure
from otil_exp.run_folder.cell import Cell
from otil_exp.topology import RankContext, meet

COMPILE_THREADS = "8"
"""Inductor's helpers of a rank; its own choice, one a core, is made for one rank a machine."""


class CellJob(Job):
    def __init__(self, cell: Cell, folder: Path) -> None:
        """folder: of the job's log; the ranks' are in the cell's."""
        super().__init__(cell.folder.path.name, folder, start_ranks, cell)
        self.cell = cell

    @property
    def logs(self) -> list[Path]:
        """A rank that was ended in the middle of something says in its log where it was."""
        return [*super().logs, *sorted(self.cell.folder.logs.glob("rank*.log"))]


def start_ranks(cell: Cell, files: Files) -> None:
    """What the process of a job does."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", COMPILE_THREADS)
    try:
        launch(run_rank, cell.effective.topology.world_size, cell, files, log_dir=cell.folder.logs, threads=1)
    except RankFailure as failure:
        note_failure(cell.folder, failure.rank, failure.reason, failure.traceback)
        raise


def run_rank(cell: Cell, files: Files) -> None:
    """What a rank does: that of any run, but for the halt."""

    def built(config: Any, ranks: RankContext, *models: Any, **options: Any) -> RankPipeline:
        pipeline = build_pipeline(config, ranks, *models, **options)
        meet()  # also so that no rank leaves the GPUs a collective that waits for another
        if ranks.is_main:
            files.say_ready()
        files.wait_for_go()
        return pipeline

    execution.build_pipeline = built
    execution.execute([cell], hosted=False)
