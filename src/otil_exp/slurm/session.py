"""One command on a login node: submit a grid, wait for it if asked to, and say how it went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from otil_exp.grid import Member
from otil_exp.report.table import summary
from otil_exp.slurm.queue import QueueError, cancel
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submission, submit
from otil_exp.slurm.watch import wait_for


def run_grid(members: Sequence[Member], settings: SlurmSettings, grid_folder: Path, console: Console) -> str | None:
    """Run a checked grid; returns what is wrong, in the words for the user, or None."""
    try:
        submission = submit(members, settings, grid_folder.absolute())
    except QueueError as error:
        return f"nothing was submitted: Slurm does not answer ({error})"
    _announce(submission, console)
    failures = dict(submission.refused)
    ids = " ".join(job.job_id for job in submission.jobs)
    if ids and not settings.wait:
        console.print(f"not waiting for them: the same command with hydra.launcher.wait=true does; scancel {ids}")
    if settings.wait:
        try:
            failures |= wait_for(submission.jobs, console, settings)
        except KeyboardInterrupt:
            if not settings.cancel_on_interrupt:
                return f"interrupted; the jobs go on, and the same command waits again (scancel {ids} ends them)"
            cancel(job.job_id for job in submission.jobs)
            return f"interrupted, and cancelled {ids}; the same command goes on with what is missing"
        except QueueError as error:
            return f"Slurm does not answer ({error}); the jobs go on, and the same command waits for them again"
    if settings.wait or not submission.jobs:
        console.print(summary([member.cell.folder for member in members]))
    return _verdict(members, failures, console)


def _announce(submission: Submission, console: Console) -> None:
    for member in submission.done:
        console.print(f"{member.title}: done already, skipped ({member.cell.folder.path})", markup=False)
    for jobs, word in ((submission.under_way, "in the queue already as"), (submission.submitted, "submitted as")):
        for job in jobs:
            for member in job.members:
                console.print(f"{member.title}: {word} job {job.job_id}", markup=False, highlight=False)


def _verdict(members: Sequence[Member], failures: dict[str, str], console: Console) -> str | None:
    """All failures in one list; None if there are none."""
    failed = [member for member in members if str(member.cell.folder.path) in failures]
    for member in failed:
        console.print(f"\n{member.title}", style="bold red", markup=False)
        console.print(failures[str(member.cell.folder.path)], style="red", markup=False, highlight=False)
        console.print(f"logs: {member.cell.folder.logs}", markup=False, highlight=False)
    if not failed:
        return None
    return f"{len(failed)} of {len(members)} cells failed: {', '.join(f'#{member.numbers[0]}' for member in failed)}"
