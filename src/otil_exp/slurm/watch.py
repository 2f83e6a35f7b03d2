"""Wait for the jobs of a grid: a line that says how far it is, and at the end everything that failed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from otil_exp.cell import Cell
from otil_exp.run.failure import note_interruption
from otil_exp.slurm.queue import UNDER_WAY, QueueError, states
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submitted

SILENCE_S = 600.0
"""How long slurmctld may stay silent before the wait is given up, in seconds; the jobs go on."""

SETTLE_S = 10.0
"""Seconds that the record of a job that has just ended may take to reach this machine over a shared file system."""


def wait_for(jobs: Sequence[Submitted], console: Console, settings: SlurmSettings) -> dict[str, str]:
    """Wait until all jobs have ended; returns why cells failed, by run folder.

    Raises QueueError when Slurm stays silent.
    """
    failures: dict[str, str] = {}
    waiting = {job.job_id: job for job in jobs}
    answered = time.monotonic()
    total = sum(len(job.members) for job in jobs)
    with console.status("waiting for Slurm") as line:  # shown on terminals only; what ends is printed everywhere
        while waiting:
            try:
                found = states(waiting)
                answered = time.monotonic()
            except QueueError as error:
                if time.monotonic() - answered > SILENCE_S:
                    raise
                line.update(f"Slurm does not answer ({error}); asking again")
                time.sleep(settings.poll_s)
                continue
            for job_id, state in found.items():
                if state not in UNDER_WAY:
                    _take_in(waiting.pop(job_id), state, failures, settings, console)
            line.update(_how_far(total, waiting, found, failures))
            if waiting:
                time.sleep(settings.poll_s)
    return failures


def _how_far(total: int, waiting: dict[str, Submitted], found: dict[str, str], failures: dict[str, str]) -> str:
    left = [member.cell for job in waiting.values() for member in job.members]
    running = sum(found.get(job_id) == "RUNNING" for job_id in waiting)
    pictures = sum(len(list(cell.folder.images.glob("*.png"))) for cell in left)
    wanted = sum(len(cell.prompts) for cell in left)
    return (
        f"{total - len(left)} of {total} cells ended, {len(failures)} failed; {running} jobs running, "
        f"{len(waiting) - running} waiting; {pictures} of {wanted} pictures of the rest"
    )


def _take_in(job: Submitted, state: str, failures: dict[str, str], settings: SlurmSettings, console: Console) -> None:
    """Read how the cells of a job that has ended went, and say so."""
    for member in job.members:
        if (why := _why_not_done(member.cell, job, state, settings)) is not None:
            failures[str(member.cell.folder.path)] = why
        word = "done" if why is None else f"failed: {why.splitlines()[0]}"
        console.print(f"{member.title}: {word} (job {job.job_id})", markup=False, highlight=False)


def _why_not_done(cell: Cell, job: Submitted, state: str, settings: SlurmSettings) -> str | None:
    """Why a cell is not finished and scored, with the first traceback; None if it is."""
    folder, deadline = cell.folder, time.monotonic() + SETTLE_S
    while not folder.finished and state == "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.5)
    if folder.finished and (state == "COMPLETED" or cell.settled):
        return None
    record = folder.record
    if record.get("status") == "failed" and (record.get("ended") or "") >= job.since:
        return f"rank {record['failed_rank']} failed: {record['error']}\n{record['traceback'] or ''}".rstrip()
    note_interruption(folder)
    return f"job {job.job_id} ended as {state}\n{_last_words(log_of(job.job_id, settings))}".rstrip()


def _last_words(log: Path) -> str:
    """The end of what a job's own process said of its errors."""
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([*lines[-15:], f"({log})"])


def log_of(job_id: str, settings: SlurmSettings) -> Path:
    """Where a job's own process writes its errors; its ranks have logs of their own in the run folders."""
    return Path(settings.submitit_folder.replace("%j", job_id)) / f"{job_id}_0_log.err"
