"""One job: cells one after the other on ranks that stay; finished ones are skipped, a failed one costs only itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from otil_exp.cell import Cell
from otil_exp.launch import RankFailure, launch
from otil_exp.launch.step import Step
from otil_exp.run.failure import note_failure, note_interruption
from otil_exp.run.scores import Share, score_run
from otil_exp.run_folder.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Job:
    """How the cells of a job are run; how they went is in their run folders."""

    say: Callable[[str], None]
    """Tells the user what happens."""

    hosted: bool = False
    """Others (torchrun, srun) started this process as one of the ranks."""

    main: bool = True
    """This process is the one that writes: not so in ranks but the first."""

    step: Step | None = None
    """The ranks become a step of the Slurm allocation that this process is in."""

    def run(self, cells: Sequence[Cell], failures: dict[str, str]) -> None:
        """Run cells of one topology, device and collective time-out; failures gets why cells failed, by run folder.

        A failure ends the ranks of a job: fresh ones take over what comes after the cell that failed.
        """
        with ExitStack() as locks:
            left = [cell for cell in cells if self._is_left(cell, locks, failures)]
            while left:
                for cell in left:
                    self.say(f"{cell.label}: {cell.folder.path}")
                try:
                    self._launch(left)
                    break
                except RankFailure as failure:
                    failed = next((cell for cell in left if not cell.folder.finished), left[-1])
                    if failure.log is not None:
                        failure.log = failed.folder.logs / failure.log.name
                    failures[str(failed.folder.path)] = str(failure)
                    _note(failed, failure)
                    left = left[left.index(failed) + 1 :]

    def _is_left(self, cell: Cell, locks: ExitStack, failures: dict[str, str]) -> bool:
        """Whether a cell is to be run; a finished one gets the scores that are asked for now."""
        try:
            if self.main:
                locks.enter_context(cell.folder.locked())
            if not cell.folder.finished:
                return True
            self.say(f"{cell.label}: done already, skipped ({cell.folder.path})")
            if self.main and not cell.settled:
                self.say(f"{cell.label}: scoring")
                score_run(cell.folder, cell.effective.metrics, Share.all())
        except (ValueError, FileNotFoundError) as error:
            failures[str(cell.folder.path)] = str(error)
        return False

    def _launch(self, cells: list[Cell]) -> None:
        first = cells[0]
        runs = [
            RunSpec(effective=cell.effective, composed=cell.composed, prompts=cell.prompts, folder=cell.folder)
            for cell in cells
        ]
        world_size, threads = first.effective.topology.world_size, first.effective.device.threads
        try:
            if not self.hosted:
                self.say(f"starting {world_size} rank{'s' * (world_size > 1)}")
            since = None if self.hosted else time.time()
            logs = first.folder.logs
            launch(_on_rank, world_size, runs, self.hosted, since, log_dir=logs, threads=threads, step=self.step)
        except (KeyboardInterrupt, SystemExit):
            if not self.hosted:
                for cell in cells:
                    note_interruption(cell.folder)
            raise


def _on_rank(runs: Sequence[RunSpec], hosted: bool, starting_since: float | None) -> None:
    """Ranks load diffusers; a process that only starts them does not, nor one that refuses a cell."""
    from otil_exp.run.execution import execute

    execute(runs, hosted, starting_since)


def _note(cell: Cell, failure: RankFailure) -> None:
    """Name the failure in the record; a full disk, which may be the failure itself, must not hide it."""
    with suppress(OSError):
        note_failure(cell.folder, failure.rank, failure.reason, failure.traceback)
