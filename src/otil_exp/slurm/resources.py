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


def check_settings(settings: SlurmSettings) -> None:
    """Raise ValueError, with what to type, for launcher settings that no cell can use."""
    for name, value, why in (
        ("gpus_per_task", settings.gpus_per_task, "ranks see all GPUs of their node and take their own by local rank"),
        ("cpus_per_gpu", settings.cpus_per_gpu, "use hydra.launcher.cpus_per_task=N, CPUs of a rank"),
        (
            "gres",
            settings.gres if settings.gres and "gpu" in settings.gres else None,
            "GPUs follow from the topology; their type is hydra.launcher.gpu_type=TYPE",
        ),
    ):
        if value is not None:
            raise ValueError(f"hydra.launcher.{name}={value}: leave it out; {why}")
    for name, count, least in (
        ("ranks_per_node", settings.ranks_per_node, 1),
        ("pack", settings.pack, 1),
        ("array_parallelism", settings.array_parallelism, 1),
        ("timeout_min", settings.timeout_min, 1),
        ("max_num_timeout", settings.max_num_timeout, 0),
    ):
        if count < least:
            raise ValueError(f"hydra.launcher.{name}={count}: use {least} or more")
    if settings.signal_delay_s >= 60 * (settings.timeout_min - 1):
        raise ValueError(
            f"hydra.launcher.signal_delay_s={settings.signal_delay_s} with hydra.launcher.timeout_min="
            f"{settings.timeout_min}: Slurm may signal a minute early, so a job would have no time to work; use a "
            f"timeout_min above {settings.signal_delay_s / 60 + 1:g}"
        )


def device_for(kind: str, partition: str | None) -> str:
    """Settle device= by what the partition has, since a login node's own GPUs, or none, say nothing.

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
    # The default partition has a star.
    own = [gres for name, gres in found if (name.rstrip("*") == partition if partition else name.endswith("*"))]
    if not own:
        names = ", ".join(sorted({name.rstrip("*") for name, _ in found}))
        raise ValueError(f"hydra.launcher.partition={partition}: this cluster has {names}")
    return any("gpu" in gres for gres in own)


def _refuse_other(settings: SlurmSettings, ranks: int, name: str, typed: int | None, follows: int) -> None:
    if typed is not None and typed != follows:
        raise ValueError(
            f"hydra.launcher.{name}={typed} contradicts the {ranks} ranks of the topology, which make it {follows}: "
            f"leave it out, or use another topology"
        )


def _divisor(ranks: int, settings: SlurmSettings) -> int:
    return max(n for n in range(1, settings.ranks_per_node + 1) if ranks % n == 0)
