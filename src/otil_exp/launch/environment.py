"""Who started this process: nobody (then we start the ranks), torchrun, or a scheduler."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

FIRST_PORT = 10007
"""MASTER_PORT of a Slurm job lies in 10007 .. 32757: below the range that Linux hands to outgoing connections."""

PORTS = 22751
"""A prime, so that every multiple of a job number reaches every port."""


class WorldSizeError(ValueError):
    """Others started as many ranks as the topology does not have: every rank finds out."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a process that others started stands among its peers."""

    starter: str
    """torchrun, srun or submitit."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    cpus: int | None = None
    """CPUs that the scheduler gave this rank; None where it does not say."""

    master_addr: str
    master_port: str

    more_ranks: str
    """What a user types to get {world_size} ranks from this starter."""

    def variables(self) -> dict[str, str]:
        """What torch.distributed (env://) and the ranks read."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": self.master_port,
        }

    def check(self, world_size: int) -> None:
        """Raise WorldSizeError unless the starter made as many ranks as the topology has."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{self.starter} started {self.world_size} ranks, but the topology has {world_size}: use "
                f"`{self.more_ranks.format(world_size=world_size)}`, or a topology=... of {self.world_size} ranks"
            )


def place_of(environment: Mapping[str, str]) -> Place | None:
    """The place of this process among ranks that others started; None when it is to start them itself."""
    return _torchrun(environment) or _slurm(environment) or _submitit_local(environment)


def _torchrun(environment: Mapping[str, str]) -> Place | None:
    # Some clusters set RANK and WORLD_SIZE for whole machines: only LOCAL_RANK says "this process is one of the ranks".
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= environment.keys():
        return None
    world_size = int(environment["WORLD_SIZE"])
    elastic = "TORCHELASTIC_RUN_ID" in environment
    # One rank that torchrun did not start: what another program or an `export` left behind.
    left_behind = world_size == 1 and not elastic
    return Place(
        starter="torchrun" if elastic else "whoever set RANK and WORLD_SIZE",
        rank=int(environment["RANK"]),
        world_size=world_size,
        local_rank=int(environment["LOCAL_RANK"]),
        local_world_size=int(environment.get("LOCAL_WORLD_SIZE", world_size)),
        master_addr=environment.get("MASTER_ADDR", "localhost"),
        master_port=environment.get("MASTER_PORT", "29500"),
        more_ranks="env -u RANK -u WORLD_SIZE -u LOCAL_RANK otil-exp ..."
        if left_behind
        else "torchrun --nproc_per_node={world_size}",
    )


def _slurm(environment: Mapping[str, str]) -> Place | None:
    """A task of a Slurm step of several tasks.

    sbatch's script has SLURM_PROCID=0 and SLURM_NTASKS as well, but is in no step; the shell of salloc or `srun --pty`
    is a step of one task. Both start their ranks themselves, as a real one-task step may as well.
    """
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", 1))
    return place_of_task(environment) if tasks > 1 and "SLURM_PROCID" in environment else None


def place_of_task(environment: Mapping[str, str]) -> Place:
    """The place of a task of a Slurm step, a step of one task too."""
    tasks = int(environment["SLURM_STEP_NUM_TASKS"])
    cpus = environment.get("SLURM_CPUS_PER_TASK")
    per_node = _tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", str(tasks)))
    return Place(
        starter="srun",
        rank=int(environment["SLURM_PROCID"]),
        world_size=tasks,
        local_rank=int(environment["SLURM_LOCALID"]),
        local_world_size=per_node[int(environment.get("SLURM_NODEID", 0))],
        cpus=int(cpus) if cpus else None,
        master_addr=environment.get("MASTER_ADDR") or _first_host(environment),
        master_port=environment.get("MASTER_PORT")
        or job_port(int(environment["SLURM_JOB_ID"]), int(environment["SLURM_STEP_ID"])),
        # Only sbatch sets ENVIRONMENT, and srun passes it on: a step cannot have more tasks than its script was given.
        more_ranks=("sbatch" if environment.get("ENVIRONMENT") == "BATCH" else "srun") + " --ntasks={world_size}",
    )


def _submitit_local(environment: Mapping[str, str]) -> Place | None:
    """A task of submitit's local executor, which stands in for Slurm on one machine."""
    tasks = int(environment.get("SUBMITIT_LOCAL_NTASKS", 1))
    if tasks < 2:
        return None
    return Place(
        starter="submitit",
        rank=int(environment["SUBMITIT_LOCAL_GLOBALID"]),
        world_size=tasks,
        local_rank=int(environment["SUBMITIT_LOCAL_LOCALID"]),
        local_world_size=tasks,
        master_addr=environment.get("MASTER_ADDR", "localhost"),
        master_port=environment.get("MASTER_PORT") or job_port(int(environment["SUBMITIT_LOCAL_JOB_ID"]), 0),
        more_ranks="hydra.launcher.tasks_per_node={world_size}",
    )


def job_port(job: int, step: int) -> str:
    """MASTER_PORT of a job step: 10007 + (101 * job + step) mod 22751, the same on all its ranks.

    Jobs whose numbers differ by less than 225 get different ports for all of their first 100 steps.
    """
    return str(FIRST_PORT + (101 * job + step) % PORTS)


def free_port(job: int) -> str:
    """MASTER_PORT of a step that starts on this host: of its job's ports the first that nobody listens at."""
    both = socket.has_dualstack_ipv6()
    for step in range(PORTS):
        port = job_port(job, step)
        try:
            family = socket.AF_INET6 if both else socket.AF_INET
            socket.create_server(("", int(port)), family=family, dualstack_ipv6=both).close()
        except OSError:
            continue
        return port
    raise RuntimeError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free on {socket.gethostname()}")


def _first_host(environment: Mapping[str, str]) -> str:
    """Address of the node that holds rank 0: the first of the step's list."""
    if environment.get("SLURM_STEP_NUM_NODES", "1") == "1":
        return "localhost"  # 127.0.0.1 or ::1, which IPv6-only hosts have alone
    # "gpu[07-09,12],login1" -> "gpu07"
    host = re.sub(r"\[(\w+)[^\]]*\]", r"\1", environment["SLURM_STEP_NODELIST"]).split(",")[0]
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        # Slurm may use names that only its own configuration resolves; srun in a batch script runs on the first node.
        return environment.get("SLURM_LAUNCH_NODE_IPADDR", host)
    return host


def _tasks_per_node(counts: str) -> list[int]:
    """Tasks of every node: "4(x2),1" -> [4, 4, 1]."""
    return [int(tasks) for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", counts) for _ in range(int(times or 1))]
