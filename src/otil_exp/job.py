"""One job: cells one after the other on ranks that stay; finished ones are skipped, a failed one costs only itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from otil_exp.config import DeviceConfig
from otil_exp.launch import RankFailure, launch
from otil_exp.launch.narrow_link import NarrowLink
from otil_exp.launch.step import SlurmStep
from otil_exp.methods.geometry import is_reference
from otil_exp.phases import Pulse, going_on, lasting
from otil_exp.run.failure import note_failure, note_interruption
from otil_exp.run.halt import Halt
from otil_exp.run.scores import Share, score_run, settled
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.lock import NAME, BusyError, is_locked, owner
from otil_exp.run_folder.reference import References
from otil_exp.terminal import console
from otil_exp.tracking import rescored

POLL_S = 1.0
"""Seconds between looks at a lock that another process holds."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """How the cells of a job are run; how they went is in their run folders."""

    say: Callable[[str], None]
    """Tells the user what happens."""

    hosted: bool = False
    """Others (torchrun, srun) started this process as one of the ranks."""

    main: bool = True
    """This process is the one that writes: not so in ranks but the first."""

    step: SlurmStep | None = None
    """The ranks become a step of the Slurm allocation that this process is in."""

    halt: Halt | None = None
    """Called by every rank between its ready pipeline and its first picture (`otil_exp.run.halt`)."""

    references: References = field(default_factory=References)
    """Looks references up for all cells of a command."""
    wait_s: float = inf
    """Seconds that other processes may go on with cells of this job before those count as failed. Ranks that others
    started do not wait: their peers would wait in a collective."""

    def run(self, cells: Sequence[Cell], failures: dict[str, str]) -> None:
        """Run cells of one topology, device and collective time-out; failures gets why cells failed, by run folder.

        A failure ends the ranks of a job: fresh ones take over what comes after the cell that failed. A cell that
        another process runs is waited for, after the others, and holding no lock: two commands never wait for each
        other.
        """
        deadline, left = time.monotonic() + self.wait_s, list(cells)
        while left:
            busy: list[Cell] = []
            with ExitStack() as locks:
                to_run = [cell for cell in left if self._is_left(cell, locks, busy, failures)]
                self._run_all(to_run, failures)
            if busy and not self._wait_for(busy[0], deadline):
                failures.update((str(cell.folder.path), _busy(cell)) for cell in busy)
                return
            for cell in (*to_run, *busy):
                if is_reference(cell.effective):
                    self.references.forget(cell.folder.path.parent)
            left = busy

    def _run_all(self, left: list[Cell], failures: dict[str, str]) -> None:
        while left:
            for cell in left:
                self.say(f"{cell.label}: {cell.folder.path}")
            try:
                self._launch(left)
                return
            except RankFailure as failure:
                failed = next((cell for cell in left if not cell.made), left[-1])
                if failure.log is not None:
                    failure.log = failed.folder.logs / failure.log.name
                failures[str(failed.folder.path)] = str(failure)
                _note(failed, failure)
                left = left[left.index(failed) + 1 :]

    def _is_left(self, cell: Cell, locks: ExitStack, busy: list[Cell], failures: dict[str, str]) -> bool:
        """Whether a cell is to be run; a finished one gets the scores that are asked for now."""
        try:
            if self.main:
                locks.enter_context(cell.folder.locked())
            if not cell.made:
                return True
            self.say(f"{cell.label}: done already, skipped ({cell.folder.path})")
            if self.main and not settled(cell, self.references):
                with lasting(f"{cell.label}: scoring", self.say, console()):
                    score_run(cell.folder, cell.effective.metrics, Share.all())
                rescored(cell.folder)
        except BusyError as error:
            if self.hosted:  # the other ranks are on their way
                failures[str(cell.folder.path)] = str(error)
            else:
                busy.append(cell)
        except (ValueError, FileNotFoundError) as error:
            failures[str(cell.folder.path)] = str(error)
        return False

    def _wait_for(self, cell: Cell, deadline: float) -> bool:
        """Wait until nobody else runs a cell: while that process lives, since its lock goes with it. False if that is
        later than the deadline."""
        said, since, pulse = "", time.monotonic(), Pulse(self.say)
        while is_locked(cell.folder.path):
            if time.monotonic() >= deadline:
                return False
            pulse.beat(lambda: going_on(f"{cell.label}: waiting for {_runner(cell)}", time.monotonic() - since))
            if (by := _runner(cell)) != said:
                self.say(f"{cell.label}: run by {by}, waiting for it (Ctrl-C leaves it alone)")
                said = by
            time.sleep(POLL_S)
        return True

    def _launch(self, cells: list[Cell]) -> None:
        first = cells[0]
        world_size, threads = first.effective.topology.world_size, first.effective.device.threads
        try:
            since = None if self.hosted else time.time()
            logs = first.folder.logs
            call, link = (cells, self.hosted, since, self.halt), _link(first.effective.device)
            with nullcontext() if self.hosted else self._starting(first, world_size):
                launch(_on_rank, world_size, *call, log_dir=logs, threads=threads, step=self.step, link=link)
        except (KeyboardInterrupt, SystemExit):
            if not self.hosted:
                for cell in cells:
                    note_interruption(cell.folder)
            raise

    def _starting(self, first: Cell, world_size: int) -> AbstractContextManager[None]:
        """Say that ranks are starting until rank 0 notes in the record of the first cell that they have joined."""
        record, words = first.folder.path / "record.json", f"starting {world_size} rank{'s' * (world_size > 1)}"
        before = _changed(record)
        return lasting(words, self.say, console(), until=lambda: _changed(record) != before)


def _changed(path: Path) -> int:
    """When a file was written, ns; 0 where it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0


def _link(device: DeviceConfig) -> NarrowLink | None:
    return NarrowLink(device.link_mbit, device.link_delay_ms) if device.link_mbit else None


def _runner(cell: Cell) -> str:
    return str(owner(cell.folder.path / NAME) or "another process")


def _busy(cell: Cell) -> str:
    return f"{cell.folder.path} is being run by {_runner(cell)}: type the command again when that has ended"


def _on_rank(cells: Sequence[Cell], hosted: bool, starting_since: float | None, halt: Halt | None) -> None:
    """Ranks load diffusers; a process that only starts them does not, nor one that refuses a cell."""
    from otil_exp.run.execution import execute

    execute(cells, hosted, starting_since, halt)


def _note(cell: Cell, failure: RankFailure) -> None:
    """Name the failure in the record; a full disk, which may be the failure itself, must not hide it."""
    with suppress(OSError):
        note_failure(cell.folder, failure.rank, failure.reason, failure.traceback)
