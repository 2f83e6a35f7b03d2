"""What a cell needs of a cluster: it follows from the topology, and a contradiction is refused while composing."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from otil_exp.choices import DeviceKind
from otil_exp.run_folder.cell import Cell
from otil_exp.slurm.queue import TIMEOUT_S
from otil_exp.slurm.settings import SlurmSettings


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Of one job."""

    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    cpus_per_task: int | None
    """None leaves it to Slurm."""


def resources_of(cell: Cell, settings: SlurmSettings) -> Resources:
    """Nodes, ranks a node, GPUs a node and CPUs a rank of a cell.

    Raises ValueError, with what to type, where the launcher's settings contradict the cell.
    """
    ranks = cell.effective.topology.world_size
    nodes = settings.nodes or -(-ranks // settings.ranks_per_node)
    if ranks % nodes:
        raise ValueError(
            f"{ranks} ranks do not lie evenly on {nodes} nodes: "
            + (
                "leave hydra.launcher.nodes out, and say how many ranks a node takes by hydra.launcher.ranks_per_node=N"
                if settings.nodes
                else f"use a hydra.launcher.ranks_per_node that divides {ranks}, such as {_divisor(ranks, settings)}"
            )
        )
    per_node = ranks // nodes
    on_gpus = {DeviceKind.cuda: per_node, DeviceKind.shared_gpu: 1}
    gpus = on_gpus.get(cell.effective.device.kind, 0)
    _refuse_other(settings, ranks, "tasks_per_node", settings.tasks_per_node, per_node)
    _refuse_other(settings, ranks, "gpus_per_node", settings.gpus_per_node, gpus)
    if cell.effective.device.kind is DeviceKind.shared_gpu and nodes > 1:
        raise ValueError(f"device=shared_gpu: the {ranks} ranks share one GPU, so they must fit on one node")
    threads = cell.effective.device.threads
    if threads and settings.cpus_per_task and threads > settings.cpus_per_task:
        raise ValueError(
            f"device.threads={threads} with hydra.launcher.cpus_per_task={settings.cpus_per_task}: threads would share "
            f"CPUs; use hydra.launcher.cpus_per_task={threads}, or leave it out"
        )
    return Resources(
        nodes=nodes, tasks_per_node=per_node, gpus_per_node=gpus, cpus_per_task=settings.cpus_per_task or threads
    )


def device_for(kind: str, partition: str | None) -> str:
    """Settle device= by what the partition has, since a login node's own GPUs, or none, say nothing.

    partition: one, or several with commas between; Slurm takes the one where the job starts first, and asks for GPUs
        where there are none of none.
    auto: cuda where nodes of the partition have GPUs, else cpu. Raises ValueError where GPUs are asked for that the
    partition does not have, or where there is no Slurm.
    """
    gpus = _has_gpus(partition)
    if kind == "auto":
        return "cuda" if gpus else "cpu"
    if kind != "cpu" and not gpus:
        where = f"partition {partition}" if partition else "the default partition"
        raise ValueError(
            f"device={kind}: {where} has no GPUs (sinfo --format=%G); use another hydra.launcher.partition, or "
            "device=cpu"
        )
    return kind


@cache
def _has_gpus(partition: str | None) -> bool:
    if shutil.which("sinfo") is None:
        raise ValueError(
            "hydra/launcher=slurm: there is no sinfo on the PATH: run it on a login node of a cluster, or start a "
            "Slurm of your own by launchers/one_node_slurm"
        )
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%P|%G"], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"hydra/launcher=slurm: sinfo did not answer in {TIMEOUT_S:g} s: is slurmctld up, and SLURM_CONF right?"
        ) from error
    if done.returncode:
        raise ValueError(f"hydra/launcher=slurm: sinfo says: {done.stderr.strip()}")
    found = [line.split("|", 1) for line in done.stdout.splitlines()]
    has = {name.rstrip("*") for name, _ in found}
    # The default partition has a star.
    asked = set(partition.split(",")) if partition else {name.rstrip("*") for name, _ in found if name.endswith("*")}
    if not asked or asked - has:
        raise ValueError(
            f"hydra.launcher.partition={partition}: this cluster has {', '.join(sorted(has))}; use one of them, or "
            "several with commas between: 'hydra.launcher.partition=\"A,B\"'"
        )
    return any(holds_gpus(gres) for name, gres in found if name.rstrip("*") in asked)


def holds_gpus(gres: str) -> bool:
    """Whether nodes have GPUs, as sinfo's %G says it: gpu:4, gpu:l40s:4(S:0-1),mps:400; of gpu:0 they have none."""
    kinds = [one.partition("(")[0].split(":") for one in gres.split(",")]
    return any(kind[0] == "gpu" and kind[-1] != "0" for kind in kinds)


def _refuse_other(settings: SlurmSettings, ranks: int, name: str, typed: int | None, follows: int) -> None:
    if typed is not None and typed != follows:
        raise ValueError(
            f"hydra.launcher.{name}={typed} contradicts the {ranks} ranks of the topology, which make it {follows}: "
            f"leave it out, or use another topology"
        )


def _divisor(ranks: int, settings: SlurmSettings) -> int:
    return max(n for n in range(1, settings.ranks_per_node + 1) if ranks % n == 0)
