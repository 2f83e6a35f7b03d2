"""One command on a login node: submit a grid, wait for it if asked to, and say how it went."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from otil_exp.cells.grid import Member
from otil_exp.methods.geometry import is_reference
from otil_exp.report.table import summary
from otil_exp.slurm.interrupts import ends_raise
from otil_exp.slurm.ledger import Ledger
from otil_exp.slurm.queue import QueueError, cancel
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submission, Submitter
from otil_exp.slurm.watch import Watch


def run_grid(members: Sequence[Member], settings: SlurmSettings, grid_folder: Path, console: Console) -> str | None:
    """Run a checked grid; returns what is wrong, in the words for the user, or None."""
    submission, failures = Submission(), dict[str, str]()
    say = partial(console.print, markup=False, highlight=False)
    submitter = Submitter(settings, Ledger(grid_folder.absolute()), submission, say)
    try:
        with ends_raise():
            submitter.submit(members)
            failures |= submission.refused
            _announce(submission, members, console)
            if settings.wait:
                Watch(console, settings, failures, submitter.submit_again).wait_for(submission.jobs)
    except QueueError as error:
        if not submission.jobs:
            return f"nothing was submitted: Slurm does not answer ({error})"
        return f"Slurm does not answer ({error}); the jobs go on, and the same command waits for them again"
    except ValueError as error:
        return str(error)
    except KeyboardInterrupt:
        _verdict(members, failures, console)
        return _interrupted(submission, settings)
    if submission.jobs and not settings.wait:
        ids = _ids(submission)
        console.print(f"not waiting for them: the same command with hydra.launcher.wait=true does; scancel {ids}")
    if settings.wait or not submission.jobs:
        console.print(summary([member.cell.folder for member in members]), soft_wrap=False)
    return _verdict(members, failures, console)


def _ids(submission: Submission) -> str:
    return " ".join(job.job_id for job in submission.jobs)


def _interrupted(submission: Submission, settings: SlurmSettings) -> str:
    """Leave the jobs to themselves, or cancel them; what is said of it."""
    if not submission.jobs:
        return "interrupted; nothing was submitted"
    ids = _ids(submission)
    if not settings.cancel_on_interrupt:
        return f"interrupted; the jobs go on, and the same command waits again (scancel {ids} ends them)"
    cancel(job.job_id for job in submission.jobs)
    return f"interrupted, and cancelled {ids}; the same command goes on with what is missing"


def _announce(submission: Submission, members: Sequence[Member], console: Console) -> None:
    for member in submission.done:
        console.print(f"{member.title}: done already, skipped ({member.cell.folder.path})")
    for jobs, word in ((submission.under_way, "in the queue already as"), (submission.submitted, "submitted as")):
        for job in jobs:
            for member in job.members:
                console.print(f"{member.title}: {word} job {job.job_id}")
    for member in members:
        if (words := submission.refused.get(str(member.cell.folder.path))) is not None:
            console.print(f"{member.title}: {words}", style="red")
            if is_reference(member.cell.effective):
                console.print("  others that are compared with it run without: type the command again once it is done")


def _verdict(members: Sequence[Member], failures: dict[str, str], console: Console) -> str | None:
    """All failures in one list; None if there are none."""
    failed = [member for member in members if str(member.cell.folder.path) in failures]
    for member in failed:
        console.print(f"\n{member.title}", style="bold red")
        console.print(failures[str(member.cell.folder.path)], style="red")
        if member.cell.folder.logs.exists():
            console.print(f"logs: {member.cell.folder.logs}")
    if not failed:
        return None
    return f"{len(failed)} of {len(members)} cells failed: {', '.join(f'#{member.numbers[0]}' for member in failed)}"
