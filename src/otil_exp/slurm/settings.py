"""Schema of hydra/launcher=slurm: hydra-submitit-launcher's, less what follows from a cell, and with what it lacks."""

from __future__ import annotations

from dataclasses import dataclass

from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf


@dataclass
class SlurmSettings(SlurmQueueConf):
    """partition, account, qos, constraint, mem_gb, timeout_min, setup and others are hydra-submitit-launcher's own."""

    _target_: str = "hydra_plugins.otil_exp_launcher.slurm.SlurmLauncher"

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

    cancel_on_interrupt: bool = False
    """Whether Ctrl-C cancels the jobs; they go on otherwise, and the same command waits for them again."""

    max_num_timeout: int = 20
    """How often a job is started again after a time limit or a preemption. One that reaches its limit without a single
    new picture is not."""
