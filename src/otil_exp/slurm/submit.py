"""From the cells of a grid to jobs in the queue: arrays of equal resources, references first, packed where asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

from submitit.core.utils import FailedJobError

from otil_exp.grid import Member, packed
from otil_exp.run.provenance import now
from otil_exp.slurm.allocation import Allocation
from otil_exp.slurm.interrupts import undisturbed
from otil_exp.slurm.ledger import Entry, Ledger
from otil_exp.slurm.queue import QueueError, Standing, cluster_name, standings
from otil_exp.slurm.resources import Resources, resources_of
from otil_exp.slurm.script import executor_for
from otil_exp.slurm.settings import SlurmSettings

LARGEST_ARRAY = 1000
"""Jobs of one array: Slurm's own default bound is MaxArraySize=1001."""


@dataclass(frozen=True)
class Submitted:
    """A job in the queue, and the cells it runs."""

    job_id: str
    members: list[Member]
    since: str
    """When it was submitted, as `now` has it."""


@dataclass(frozen=True)
class Submission:
    """What became of a grid; it fills while the grid is submitted."""

    done: list[Member] = field(default_factory=list)
    """Finished and scored before: nothing to do."""

    under_way: list[Submitted] = field(default_factory=list)
    """Submitted by an earlier command, and still in the queue."""

    submitted: list[Submitted] = field(default_factory=list)

    refused: dict[str, str] = field(default_factory=dict)
    """Slurm's words for cells it did not take, by run folder."""

    @property
    def jobs(self) -> list[Submitted]:
        return [*self.under_way, *self.submitted]


@dataclass(frozen=True)
class Array:
    """Packs of equal resources that are submitted at once."""

    resources: Resources
    packs: list[list[Member]]


def submit(
    members: Sequence[Member],
    settings: SlurmSettings,
    ledger: Ledger,
    submission: Submission,
    say: Callable[[str], object],
) -> None:
    """Put a checked grid into the queue: what is done stays out, and so does what is in the queue already.

    submission: gets to know of every array as soon as Slurm has it, so that Ctrl-C between two loses none; say: is told
    where another command is at it, which is waited for.
    Raises QueueError while slurmctld does not answer, ValueError for a ledger that cannot be read or locked.
    """
    with ledger.locked(say):
        left = _sort_out(members, ledger, submission)
        references = [member for member in left if member.cell.folder.is_reference]
        others = [member for member in left if not member.cell.folder.is_reference]
        _submit_arrays(references, settings, [], submission, ledger)
        waited_for = [
            job.job_id for job in submission.jobs if any(member.cell.folder.is_reference for member in job.members)
        ]
        _submit_arrays(others, settings, waited_for if settings.after_reference else [], submission, ledger)


def arrays_of(members: Sequence[Member], settings: SlurmSettings) -> list[Array]:
    """The arrays that cells become: one for all packs of equal resources, up to LARGEST_ARRAY jobs each."""
    packs = [(_resources(pack[0], settings), pack) for pack in packed(members, settings.pack)]
    arrays = []
    for resources, group in groupby(sorted(packs, key=lambda item: str(item[0])), key=lambda item: item[0]):
        alike = [pack for _, pack in group]
        arrays += [
            Array(resources, alike[start : start + LARGEST_ARRAY]) for start in range(0, len(alike), LARGEST_ARRAY)
        ]
    return arrays


def _sort_out(members: Sequence[Member], ledger: Ledger, submission: Submission) -> list[Member]:
    """The cells that are to be submitted; `submission` gets the others."""
    settled = {id(member) for member in members if member.cell.settled}
    submission.done.extend(member for member in members if id(member) in settled)
    left = {member.cell.folder.path.name: member for member in members if id(member) not in settled}
    jobs: dict[tuple[str, str], list[Member]] = {}
    for name, (entry, _) in ledger.in_queue(left).items():
        jobs.setdefault((entry.job, entry.submitted), []).append(left.pop(name))
    submission.under_way.extend(Submitted(job, its, since) for (job, since), its in jobs.items())
    return list(left.values())


def _submit_arrays(
    members: Sequence[Member], settings: SlurmSettings, after: list[str], submission: Submission, ledger: Ledger
) -> list[Submitted]:
    """Submit cells; after: jobs that must have ended, however they did."""
    submitted = []
    for array in arrays_of(members, settings):
        with undisturbed():
            jobs = _submit_array(array, settings, after, submission)
            submission.submitted.extend(jobs)
            ledger.add(_entries(jobs))
        submitted += jobs
    return submitted


def _resources(member: Member, settings: SlurmSettings) -> Resources:
    """Of a job for this cell; scoring finished pictures takes one process."""
    resources = resources_of(member.cell, settings)
    return replace(resources, nodes=1, tasks_per_node=1) if member.cell.folder.finished else resources


def _submit_array(array: Array, settings: SlurmSettings, after: list[str], submission: Submission) -> list[Submitted]:
    """Submit one array; none, with Slurm's words in `submission`, where Slurm refuses it."""
    executor = executor_for(array.resources, settings, after)
    allocations = [
        Allocation(
            cells=[member.cell for member in pack],
            resources=array.resources,
            timeout_min=settings.timeout_min,
            signal_delay_s=settings.signal_delay_s,
            max_requeues=settings.max_num_timeout,
        )
        for pack in array.packs
    ]
    since = now()
    try:
        with executor.batch():
            jobs = [executor.submit(allocation) for allocation in allocations]
    except FailedJobError as error:
        words = " ".join(re.findall(r"sbatch: error: (.*)", str(error))) or str(error)
        for pack in array.packs:
            for member in pack:
                submission.refused[str(member.cell.folder.path)] = f"Slurm did not take the job: {words}"
        return []
    return [Submitted(job.job_id, pack, since) for job, pack in zip(jobs, array.packs, strict=True)]


def _entries(jobs: Sequence[Submitted]) -> dict[str, Entry]:
    """What the ledger notes of jobs that Slurm has just taken, by run folder."""
    found: dict[str, Standing] = {}
    cluster = ""
    with suppress(QueueError):  # it has them, even where it cannot say more of them now
        found, cluster = standings(job.job_id for job in jobs), cluster_name()
    return {
        member.cell.folder.path.name: Entry(
            job=job.job_id,
            cluster=cluster,
            submitted=job.since,
            script=found.get(job.job_id, Standing()).script,
            title=member.names[0],
        )
        for job in jobs
        for member in job.members
    }
