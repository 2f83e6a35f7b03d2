"""How jobs stand, from squeue while Slurm remembers them and from sacct, where it keeps accounts, afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

UNDER_WAY = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
}
"""States (squeue(1), JOB STATE CODES) of jobs that have not ended for good."""

GONE = "GONE"
"""State of a job that nobody remembers."""

NEVER = {
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
}
"""Reasons (squeue(1), JOB REASON CODES) for which a job waits until somebody changes it or the cluster."""

TIMEOUT_S = 60.0
"""Bound on every question to Slurm, in seconds."""


class QueueError(RuntimeError):
    """Slurm does not answer."""


def states(job_ids: Iterable[str]) -> dict[str, str]:
    """State of every job, elements of arrays as "21_0". Raises QueueError while slurmctld does not answer."""
    wanted = sorted(set(job_ids))
    if not wanted:
        return {}
    found = _squeue(wanted, "all", "%T")
    if missing := [job for job in wanted if job not in found]:
        found |= _sacct(missing)
    return {job: found.get(job, GONE) for job in wanted}


def reasons(job_ids: Iterable[str]) -> dict[str, str]:
    """Slurm's word for why jobs wait, of those that do. Raises QueueError while slurmctld does not answer."""
    wanted = sorted(set(job_ids))
    return {job: why for job, why in _squeue(wanted, "PENDING", "%r").items() if job in wanted} if wanted else {}


def cancel(job_ids: Iterable[str]) -> None:
    """scancel jobs, those that have ended too."""
    subprocess.run(["scancel", "--quiet", *sorted(set(job_ids))], timeout=TIMEOUT_S, check=False)


def _squeue(jobs: list[str], of: str, column: str) -> dict[str, str]:
    """One column of squeue's, for the jobs that are in a state."""
    masters = ",".join(sorted({job.split("_")[0] for job in jobs}))
    command = ["squeue", "--noheader", "--array", f"--states={of}", f"--format=%i|{column}", f"--jobs={masters}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise QueueError(f"squeue did not answer in {TIMEOUT_S:g} s") from error
    if done.returncode and "Invalid job id" not in done.stderr:
        raise QueueError(done.stderr.strip())
    return dict(line.split("|", 1) for line in done.stdout.splitlines())


def _sacct(jobs: list[str]) -> dict[str, str]:
    """Empty where Slurm keeps no accounts."""
    command = [
        "sacct",
        "--noheader",
        "--allocations",
        "--parsable2",
        "--format=JobID,State",
        f"--jobs={','.join(jobs)}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    # "CANCELLED by 1000"
    return {job: state.split()[0] for job, state in (line.split("|", 1) for line in done.stdout.splitlines())}
