"""Wait for the jobs of a grid: a line that says how far it is, and at the end everything that failed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from otil_exp.run.failure import note_interruption
from otil_exp.run.scores import settled
from otil_exp.run_folder.cell import Cell
from otil_exp.slurm.queue import NEVER, UNDER_WAY, QueueError, reasons, states
from otil_exp.slurm.script import log_of
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submitted

SILENCE_S = 600.0
"""How long slurmctld may stay silent before the wait is given up, in seconds; the jobs go on."""

SETTLE_S = 10.0
"""Seconds that the record of a job that has just ended may take to reach this machine over a shared file system."""


STUCK_S = 60.0
"""Seconds that a job may wait for a reason that will not go away before its cells count as failed."""


def wait_for(jobs: Sequence[Submitted], console: Console, settings: SlurmSettings, failures: dict[str, str]) -> None:
    """Wait until all jobs have ended, or can never start; failures gets why cells failed, by run folder.

    Raises QueueError when Slurm stays silent.
    """
    waiting = {job.job_id: job for job in jobs}
    stuck: dict[str, float] = {}
    answered = time.monotonic()
    total = sum(len(job.members) for job in jobs)
    with console.status("waiting for Slurm") as line:  # shown on terminals only; what ends is printed everywhere
        while waiting:
            try:
                found, why = states(waiting), reasons(waiting)
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
            for job_id in _never(waiting, why, stuck):
                _give_up(waiting.pop(job_id), why[job_id], failures, console)
            line.update(_how_far(total, waiting, found, why, failures))
            if waiting:
                time.sleep(settings.poll_s)


def _never(waiting: Iterable[str], why: dict[str, str], stuck: dict[str, float]) -> list[str]:
    """Jobs whose reason to wait has been one that does not go away for STUCK_S; stuck: since when."""
    now = time.monotonic()
    alike = {job_id for job_id in waiting if why.get(job_id) in NEVER}
    for job_id in set(stuck) - alike:
        del stuck[job_id]
    return [job_id for job_id in sorted(alike) if now - stuck.setdefault(job_id, now) >= STUCK_S]


def _give_up(job: Submitted, reason: str, failures: dict[str, str], console: Console) -> None:
    """Count the cells of a job that cannot start as failed; the job stays where it is."""
    words = (
        f"job {job.job_id} cannot start as it was asked for, Slurm says {reason}: compare hydra.launcher.partition, "
        f"timeout_min, cpus_per_task, mem_gb and ranks_per_node with what `scontrol show partition` allows, then "
        f"`scancel {job.job_id}` and type the command again"
    )
    for member in job.members:
        failures[str(member.cell.folder.path)] = words
        console.print(f"{member.title}: {words}")


def _how_far(
    total: int, waiting: dict[str, Submitted], found: dict[str, str], why: dict[str, str], failures: dict[str, str]
) -> str:
    left = [member.cell for job in waiting.values() for member in job.members]
    running = sum(found.get(job_id) == "RUNNING" for job_id in waiting)
    pictures = sum(len(list(cell.folder.images.glob("*.png"))) for cell in left)
    wanted = sum(len(cell.prompts) for cell in left)
    behind = ", ".join(sorted({why[job_id] for job_id in waiting if job_id in why}))
    behind = f" ({behind})" if behind else ""
    return (
        f"{total - len(left)} of {total} cells ended, {len(failures)} failed; {running} jobs running, "
        f"{len(waiting) - running} waiting{behind}; {pictures} of {wanted} pictures of the rest"
    )


def _take_in(job: Submitted, state: str, failures: dict[str, str], settings: SlurmSettings, console: Console) -> None:
    """Read how the cells of a job that has ended went, and say so."""
    for member in job.members:
        if (why := _why_not_done(member.cell, job, state, settings)) is not None:
            failures[str(member.cell.folder.path)] = why
        word = "done" if why is None else f"failed: {why.splitlines()[0]}"
        console.print(f"{member.title}: {word} (job {job.job_id})")


def _why_not_done(cell: Cell, job: Submitted, state: str, settings: SlurmSettings) -> str | None:
    """Why a cell is not finished and scored, with the first traceback; None if it is."""
    folder, deadline = cell.folder, time.monotonic() + SETTLE_S
    while not folder.finished and state == "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.5)
    if folder.finished and (state == "COMPLETED" or settled(cell)):
        return None
    record = folder.record
    if record.get("status") == "failed" and (record.get("ended") or "") >= job.since:
        return f"rank {record['failed_rank']} failed: {record['error']}\n{record['traceback'] or ''}".rstrip()
    note_interruption(folder)
    return f"job {job.job_id} ended as {state}: {_last_words(log_of(job.job_id, settings))}"


def _last_words(log: Path) -> str:
    """What a job's own process said of its end: its error in a line, then the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    if not lines:
        return "it left no word, so it was cancelled or killed; the same command goes on with what is missing"
    errors = [found[1] for line in lines if (found := re.match(r"(?:\w+\.)*\w*(?:Error|Exception): (.*)", line))]
    return "\n".join([errors[-1] if errors else "its last words were", *lines[-15:], f"({log})"])
