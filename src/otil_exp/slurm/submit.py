"""From the cells of a grid to jobs in the queue: arrays of equal resources, references first, packed where asked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from submitit.core.utils import FailedJobError

from otil_exp.cells.grid import Member, packed
from otil_exp.methods.geometry import is_reference
from otil_exp.run.provenance import now
from otil_exp.run.scores import settled
from otil_exp.run_folder.reference import References
from otil_exp.slurm.allocation import Allocation
from otil_exp.slurm.interrupts import undisturbed
from otil_exp.slurm.queue import UNDER_WAY, states
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


def submit(members: Sequence[Member], settings: SlurmSettings, grid_folder: Path, submission: Submission) -> None:
    """Put a checked grid into the queue: what is done stays out, and so does what is in the queue already.

    submission: gets to know of every array as soon as Slurm has it, so that Ctrl-C between two loses none.
    Raises QueueError while slurmctld does not answer.
    """
    ledger = Ledger(grid_folder / ".submitit" / "jobs.json")
    found, left = References(), list[Member]()
    for member in members:
        (submission.done if settled(member.cell, found) else left).append(member)
    submission.under_way.extend(ledger.under_way(left))
    known = {id(member) for job in submission.under_way for member in job.members}
    left = [member for member in left if id(member) not in known]
    references = [member for member in left if is_reference(member.cell.effective)]
    others = [member for member in left if not is_reference(member.cell.effective)]
    _submit_arrays(references, settings, [], submission, ledger)
    waited_for = [
        job.job_id for job in submission.jobs if any(is_reference(member.cell.effective) for member in job.members)
    ]
    _submit_arrays(others, settings, waited_for if settings.after_reference else [], submission, ledger)


class Ledger:
    """Which job runs which cell: a file of the grid, so that a command typed twice does not submit twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, list[str]] = {}
        if path.exists():
            self._entries = json.loads(path.read_text(encoding="utf-8"))

    def under_way(self, members: Sequence[Member]) -> list[Submitted]:
        """Jobs that are in the queue for some of these cells."""
        noted = {member.cell.folder.path.name: member for member in members}
        noted = {name: member for name, member in noted.items() if name in self._entries}
        alive = states(self._entries[name][0] for name in noted)
        jobs: dict[tuple[str, str], list[Member]] = {}
        for name, member in noted.items():
            job_id, since = self._entries[name]
            if alive[job_id] in UNDER_WAY:
                jobs.setdefault((job_id, since), []).append(member)
        return [Submitted(job_id, its, since) for (job_id, since), its in jobs.items()]

    def add(self, jobs: Sequence[Submitted]) -> None:
        for job in jobs:
            for member in job.members:
                self._entries[member.cell.folder.path.name] = [job.job_id, job.since]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._path)


def _submit_arrays(
    members: Sequence[Member], settings: SlurmSettings, after: list[str], submission: Submission, ledger: Ledger
) -> None:
    """One array for all packs of equal resources; after: jobs that must have ended, however they did."""
    packs = [(_resources(pack[0], settings), pack) for pack in packed(members, settings.pack)]
    for resources, group in groupby(sorted(packs, key=lambda item: str(item[0])), key=lambda item: item[0]):
        alike = [pack for _, pack in group]
        for start in range(0, len(alike), LARGEST_ARRAY):
            with undisturbed():
                jobs = _submit_array(alike[start : start + LARGEST_ARRAY], resources, settings, after, submission)
                submission.submitted.extend(jobs)
                ledger.add(jobs)


def _resources(member: Member, settings: SlurmSettings) -> Resources:
    """Of a job for this cell; scoring finished pictures takes one process."""
    resources = resources_of(member.cell, settings)
    return replace(resources, nodes=1, tasks_per_node=1) if member.cell.folder.finished else resources


def _submit_array(
    packs: list[list[Member]],
    resources: Resources,
    settings: SlurmSettings,
    after: list[str],
    submission: Submission,
) -> list[Submitted]:
    """Submit one array; none, with Slurm's words in `submission`, where Slurm refuses it."""
    executor = executor_for(resources, settings, after)
    allocations = [
        Allocation(
            cells=[member.cell for member in pack],
            resources=resources,
            timeout_min=settings.timeout_min,
            signal_delay_s=settings.signal_delay_s,
            max_requeues=settings.max_num_timeout,
        )
        for pack in packs
    ]
    since = now()
    try:
        with executor.batch():
            jobs = [executor.submit(allocation) for allocation in allocations]
    except FailedJobError as error:
        words = " ".join(re.findall(r"sbatch: error: (.*)", str(error))) or str(error)
        for pack in packs:
            for member in pack:
                submission.refused[str(member.cell.folder.path)] = f"Slurm did not take the job: {words}"
        return []
    return [Submitted(job.job_id, pack, since) for job, pack in zip(jobs, packs, strict=True)]
