"""Schema of hydra/launcher=slurm: hydra-submitit-launcher's, less what follows from a cell, and with what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf


@dataclass
class SlurmSettings(SlurmQueueConf):
    """partition, account, qos, constraint, mem_gb, timeout_min, setup and others are hydra-submitit-launcher's own."""

    _target_: str = "hydra_plugins.otil_exp_launcher.slurm.SlurmLauncher"

    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    """Where jobs leave their words, and ranks find their call; %j is the job, and is added where it is missing."""

    name: str = "${name}"
    """Name of the jobs; the grid's by default."""

    ranks_per_node: int = 8
    """Most ranks that a node takes, such as its number of GPUs; a topology of more ranks gets more nodes."""

    gpu_type: str | None = None
    """Type of GPU to ask for, as in --gpus-per-node=TYPE:4; null takes any."""

    nodes: int | None = None
    """Null follows from the topology and ranks_per_node."""

    tasks_per_node: int | None = None
    """Null follows from the topology; a value that contradicts it is refused, as is one of gpus_per_node."""

    pack: int = 1
    """Most cells that share a job, its ranks and the loaded weights, where model, topology and engine are equal."""

    after_reference: bool = True
    """Cells wait for the jobs of the references they are compared with; false starts all at once, and typing the
    command again scores them."""

    wait: bool = True
    """Wait for the jobs and show how they went; false submits and returns."""

    poll_s: float = 5.0
    """Seconds between looks at the queue."""

    dry_run: bool = False
    """Say which jobs the grid would become, their hours by earlier runs, and show the batch scripts; submit nothing."""

    snapshot: bool = False
    """Jobs import a copy of the code as it is now, below the grid's .submitit; false: the checkout as it is when they
    start."""

    max_node_failures: int = 2
    """How often the cells of a job whose node failed are started again, away from that node."""

    cancel_on_interrupt: bool = False
    """Whether Ctrl-C cancels the jobs; they go on otherwise, and the same command waits for them again."""

    max_num_timeout: int = 20
    """How often a job is started again after a time limit or a preemption. One that reaches its limit without a single
    new picture is not."""


def job_folder(submitit_folder: str) -> str:
    """hydra.launcher.submitit_folder as a pattern of one folder a job: two in one would take each other's ranks."""
    folder = str(Path(submitit_folder).absolute())
    return folder if "%j" in folder else f"{folder}/%j"


def check_settings(settings: SlurmSettings) -> None:
    """Raise ValueError, with what to type, for launcher settings that no cell can use."""
    _check_left_out(settings)
    _check_counts(settings)
    if any(not isinstance(line, str) for line in settings.setup or []):
        raise ValueError(f"hydra.launcher.setup={settings.setup}: use lines of shell, such as ['module load cuda']")
    if job_folder(settings.submitit_folder).count("%") != 1:
        raise ValueError(
            f"hydra.launcher.submitit_folder={settings.submitit_folder}: Slurm reads a % as the start of a pattern, "
            "and one %j, the job, is all that can be there: use hydra.launcher.submitit_folder=FOLDER without %"
        )
    if settings.signal_delay_s >= 60 * (settings.timeout_min - 1):
        raise ValueError(
            f"hydra.launcher.signal_delay_s={settings.signal_delay_s} with hydra.launcher.timeout_min="
            f"{settings.timeout_min}: Slurm may signal a minute early, so a job would have no time to work; use a "
            f"timeout_min above {settings.signal_delay_s / 60 + 1:g}"
        )


def _check_left_out(settings: SlurmSettings) -> None:
    """Refuse what follows from the cell, or is ours to say."""
    gpus = "GPUs follow from the topology; their type is hydra.launcher.gpu_type=TYPE"
    refused: list[tuple[str, Any, str]] = [
        ("gpus_per_task", settings.gpus_per_task, "ranks see all GPUs of their node and take their own by local rank"),
        ("cpus_per_gpu", settings.cpus_per_gpu, "use hydra.launcher.cpus_per_task=N, CPUs of a rank"),
        ("gres", settings.gres if settings.gres and "gpu" in settings.gres else None, gpus),
    ]
    reasons = {
        **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), "they follow from the topology and ranks_per_node"),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task"), gpus),
        **dict.fromkeys(("output", "error", "open-mode"), "use hydra.launcher.submitit_folder=FOLDER"),
        "array": "a grid becomes arrays by itself; hydra.launcher.array_parallelism=N bounds the jobs at once",
        "signal": "use hydra.launcher.signal_delay_s=N",
        "time": "use hydra.launcher.timeout_min=N, by which jobs know their limit",
        "partition": "use hydra.launcher.partition=NAME, by which device=auto is settled",
    }
    for key, value in settings.additional_parameters.items():
        if (why := reasons.get(key.replace("_", "-"))) is not None:
            refused.append((f"additional_parameters.{key}", value, why))
    for name, value, why in refused:
        if value is not None:
            raise ValueError(f"hydra.launcher.{name}={value}: leave it out; {why}")
    dependency = str(settings.additional_parameters.get("dependency", ""))
    if settings.after_reference and "?" in dependency:
        raise ValueError(
            f"hydra.launcher.additional_parameters.dependency={dependency}: Slurm cannot join `any of these` (?) with "
            "the references that cells wait for: use commas, or hydra.launcher.after_reference=false"
        )


def _check_counts(settings: SlurmSettings) -> None:
    least = {
        "ranks_per_node": 1,
        "nodes": 1,
        "cpus_per_task": 1,
        "mem_gb": 1,
        "pack": 1,
        "array_parallelism": 1,
        "timeout_min": 1,
        "signal_delay_s": 1,
        "max_num_timeout": 0,
        "max_node_failures": 0,
    }
    for name, bound in least.items():
        if (count := getattr(settings, name)) is not None and count < bound:
            raise ValueError(f"hydra.launcher.{name}={count}: use {bound} or more")
    if not 0 < settings.poll_s < float("inf"):
        raise ValueError(f"hydra.launcher.poll_s={settings.poll_s}: use a number of seconds above 0")
