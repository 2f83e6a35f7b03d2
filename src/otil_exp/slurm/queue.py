"""How jobs stand, from squeue while Slurm remembers them and from sacct, where it keeps accounts, afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

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

HEALTHY = {"allocated", "completing", "drained", "draining", "idle", "mixed", "planned", "reserved"}
"""States (sinfo(1), NODE STATE CODES) of nodes that have not failed; a star behind them says that a node does not
answer. One that is drained ends what it runs, and gets no more: nobody has to keep away from it."""

NODE_FAILED = {"BOOT_FAIL", "NODE_FAIL"}
"""States of jobs that their node ended."""

GONE = "GONE"
"""State of a job that nobody remembers."""

TIMEOUT_S = 60.0
"""Bound on every question to Slurm, in seconds."""


class QueueError(RuntimeError):
    """Slurm does not answer."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a job stands."""

    state: str = GONE
    """squeue(1), JOB STATE CODES."""

    reason: str = ""
    """Slurm's word for why it waits, where it does; squeue(1), JOB REASON CODES."""

    nodes: str = ""
    """Where it runs, or ran, as Slurm writes lists: n[1-2]."""

    submitted: str = ""
    """When it was submitted, or went back to the queue last, by Slurm's clock."""

    script: str = ""
    """The batch script that sbatch was given, a file of its own for each array: it tells a job from another that got
    its number later."""

    @property
    def under_way(self) -> bool:
        """Whether it has not ended for good."""
        return self.state in UNDER_WAY


def standings(job_ids: Iterable[str]) -> dict[str, Standing]:
    """How every job stands, elements of arrays as "21_0". Raises QueueError while slurmctld does not answer."""
    wanted = sorted(set(job_ids))
    if not wanted:
        return {}
    found = _squeue(wanted)
    if missing := [job for job in wanted if job not in found]:
        found |= _sacct(missing)
    return {job: found.get(job, Standing()) for job in wanted}


@cache
def cluster_name() -> str:
    """Name of the cluster that this shell's commands ask. Raises QueueError while slurmctld does not answer."""
    for line in _ask(["scontrol", "show", "config"]).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "ClusterName":
            return value.strip()
    return ""


def cancel(job_ids: Iterable[str]) -> None:
    """scancel jobs, those that have ended too."""
    if wanted := sorted(set(job_ids)):
        subprocess.run(["scancel", "--quiet", *wanted], timeout=TIMEOUT_S, check=False)


def unhealthy(nodes: str) -> list[str]:
    """Those nodes of a list (n[1-2]) that have failed. Raises QueueError."""
    said = _ask(["sinfo", "--noheader", "--Node", f"--nodes={nodes}", "--format=%N|%T"])
    found = dict(line.split("|", 1) for line in said.splitlines())  # a line a partition
    return sorted(node for node, state in found.items() if state not in HEALTHY)


def exclude(job_id: str, nodes: str) -> None:
    """Keep a job that waits away from nodes. Raises QueueError."""
    _ask(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={nodes}"])


def put_after(job_id: str, dependency: str) -> None:
    """Let a job that waits wait for these instead, as sbatch has dependencies. Raises QueueError."""
    _ask(["scontrol", "update", f"JobId={job_id}", f"Dependency={dependency}"])


def _squeue(jobs: list[str]) -> dict[str, Standing]:
    """The jobs that Slurm has in its memory: for some minutes after their end, too."""
    masters = ",".join(sorted({job.split("_")[0] for job in jobs}))
    said = _ask(["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%N|%V|%o", f"--jobs={masters}"])
    found = {}
    for line in said.splitlines():
        job, state, reason, nodes, submitted, script = line.split("|", 5)
        waits = reason if state == "PENDING" else ""
        found[job] = Standing(state=state, reason=waits, nodes=nodes, submitted=submitted, script=script)
    return found


def _ask(command: list[str]) -> str:
    """What a command of Slurm prints; of jobs that it does not remember, nothing. Raises QueueError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError as error:
        raise QueueError(f"there is no {command[0]} on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise QueueError(f"{command[0]} did not answer in {TIMEOUT_S:g} s") from error
    if done.returncode and "Invalid job id" not in done.stderr:
        raise QueueError(done.stderr.strip())
    return done.stdout


def _sacct(jobs: list[str]) -> dict[str, Standing]:
    """Empty where Slurm keeps no accounts."""
    command = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State,NodeList"]
    try:
        done = subprocess.run([*command, f"--jobs={','.join(jobs)}"], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = {}
    for line in done.stdout.splitlines():
        job, state, nodes = line.split("|", 2)
        found[job] = Standing(state=state.split()[0], nodes=nodes)  # "CANCELLED by 1000"
    return found
