"""From the cells of a grid to jobs in the queue: arrays of equal resources, references first, packed where asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import groupby

from submitit import AutoExecutor
from submitit.core.utils import FailedJobError

from otil_exp.cells.grid import Member, packed
from otil_exp.run.provenance import now
from otil_exp.run.scores import settled
from otil_exp.run_folder.reference import References
from otil_exp.slurm.allocation import Allocation
from otil_exp.slurm.interrupts import undisturbed
from otil_exp.slurm.ledger import Entry, Ledger
from otil_exp.slurm.queue import QueueError, Standing, cluster_name, standings
from otil_exp.slurm.resources import Resources, resources_of
from otil_exp.slurm.script import executor_for
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.snapshot import take

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


class Submitter:
    """Puts the cells of a grid into the queue."""

    def __init__(
        self, settings: SlurmSettings, ledger: Ledger, submission: Submission, say: Callable[[str], object]
    ) -> None:
        """submission: gets to know of every array as soon as Slurm has it, so that Ctrl-C between two loses none.

        say: is told where another command submits to the same grid, which is waited for.
        """
        self._settings = settings
        self._ledger = ledger
        self._submission = submission
        self._say = say

    def submit(self, members: Sequence[Member]) -> None:
        """Submit a checked grid: what is done stays out, and so does what is in the queue already.

        Raises QueueError while slurmctld does not answer, ValueError for a ledger that cannot be read or locked.
        """
        with self._ledger.locked(self._say):
            left = self._sort_out(members)
            references = [member for member in left if member.cell.folder.is_reference]
            others = [member for member in left if not member.cell.folder.is_reference]
            self._submit_arrays(references, self._settings, [])
            waited_for = [
                job.job_id
                for job in self._submission.jobs
                if any(member.cell.folder.is_reference for member in job.members)
            ]
            self._submit_arrays(others, self._settings, waited_for if self._settings.after_reference else [])

    def submit_again(self, members: Sequence[Member], exclude: Sequence[str]) -> list[Submitted]:
        """Submit cells whose job has ended, to other nodes than these; what another command took up stays out of it.

        Raises as `submit` does.
        """
        elsewhere = copy(self._settings)
        elsewhere.exclude = ",".join(filter(None, [self._settings.exclude, *exclude])) or None
        with self._ledger.locked(self._say):
            free = set(map(id, members)) - {id(taken) for _, taken in self._in_queue(members)}
            left = [member for member in members if id(member) in free and not settled(member.cell)]
            return self._submit_arrays(left, elsewhere, [])

    def _sort_out(self, members: Sequence[Member]) -> list[Member]:
        """The cells that are to be submitted; the submission gets the others."""
        references, left = References(), list[Member]()
        for member in members:
            (self._submission.done if settled(member.cell, references) else left).append(member)
        jobs: dict[tuple[str, str], list[Member]] = {}
        for entry, member in self._in_queue(left):
            jobs.setdefault((entry.job, entry.submitted), []).append(member)
        self._submission.under_way.extend(Submitted(job, its, since) for (job, since), its in jobs.items())
        taken = {id(member) for its in jobs.values() for member in its}
        return [member for member in left if id(member) not in taken]

    def _in_queue(self, members: Sequence[Member]) -> list[tuple[Entry, Member]]:
        """Those that a job runs, or is going to."""
        named = {member.cell.folder.path.name: member for member in members}
        return [(entry, named[name]) for name, (entry, _) in self._ledger.in_queue(named).items()]

    def _submit_arrays(
        self, members: Sequence[Member], settings: SlurmSettings, after: Sequence[str]
    ) -> list[Submitted]:
        """Submit cells; after: jobs that must have ended, however they did."""
        code = take(self._ledger.folder / "code") if settings.snapshot and members else None
        submitted = []
        for array in arrays_of(members, settings):
            executor = executor_for(array.resources, settings, after, code)
            with undisturbed():
                jobs = _submit_array(array, settings, executor, self._submission)
                self._submission.submitted.extend(jobs)
                self._ledger.add(_entries(jobs))
            submitted += jobs
        return submitted


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


def _resources(member: Member, settings: SlurmSettings) -> Resources:
    """Of a job for this cell; scoring finished pictures takes one process."""
    resources = resources_of(member.cell, settings)
    return replace(resources, nodes=1, tasks_per_node=1) if member.cell.folder.finished else resources


def _submit_array(
    array: Array, settings: SlurmSettings, executor: AutoExecutor, submission: Submission
) -> list[Submitted]:
    """Submit one array; none, with Slurm's words in `submission`, where Slurm refuses it."""
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
