"""The batch script of an array: what sbatch is told, and where its jobs leave their words."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import submitit
from omegaconf import OmegaConf

from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf, SlurmQueueConf
from otil_exp.slurm.resources import Resources
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.snapshot import import_from

_FOLLOWS = {
    "_target_",
    "submitit_folder",
    "nodes",
    "tasks_per_node",
    "gpus_per_node",
    "cpus_per_task",
    "signal_delay_s",
    "max_num_timeout",
    "additional_parameters",
}
"""Settings of hydra-submitit-launcher that do not go to sbatch as they are; none that we add does."""

PASSED = {field.name for field in fields(SlurmQueueConf)} - _FOLLOWS
"""Settings that go to sbatch as they are."""


def executor_for(
    resources: Resources, settings: SlurmSettings, after: Sequence[str] = (), code: Path | None = None
) -> submitit.AutoExecutor:
    """What submits jobs of these resources.

    after: jobs that must have ended before, however they did; code: a snapshot that the jobs import.
    """
    # The batch shell becomes our process: Slurm then tells it, and not a shell in front of it, of the job's end.
    python = f"exec {shlex.quote(sys.executable)} -m otil_exp.slurm.batch"
    executor = submitit.AutoExecutor(folder=settings.submitit_folder, cluster="slurm", slurm_python=python)
    passed = {name: value for name in sorted(PASSED) if (value := getattr(settings, name)) is not None}
    # A signal before that must not end the job: Slurm requeues what it preempts, or kills it in the end.
    passed["setup"] = ["trap '' USR2 TERM", *(settings.setup or []), *(import_from(code) if code else [])]
    common = set(OmegaConf.structured(BaseQueueConf).keys())
    parameters: dict[str, Any] = {key if key in common else f"slurm_{key}": value for key, value in passed.items()}
    executor.update_parameters(
        **parameters,
        nodes=resources.nodes,
        slurm_use_srun=False,
        slurm_signal_delay_s=settings.signal_delay_s,
        slurm_additional_parameters=_more(resources, settings, after),
    )
    return executor


def dependency(settings: SlurmSettings, after: Sequence[str]) -> str:
    """What jobs wait for, as sbatch has it: all of what the user asks for, and the end of some jobs."""
    own = settings.additional_parameters.get("dependency")
    return ",".join([*([str(own)] if own else []), *(["afterany:" + ":".join(after)] if after else [])])


def script_of(resources: Resources, settings: SlurmSettings, jobs: int) -> str:
    """The batch script of an array of jobs, less what is only known when they are submitted."""
    executor = executor_for(resources, settings)._executor  # submitit shows a script only by submitting it
    assert isinstance(executor, submitit.SlurmExecutor)
    if jobs > 1:
        executor.parameters["map_count"] = jobs
    return executor._make_submission_file_text(executor._submitit_command_str, "")


def log_of(job_id: str, settings: SlurmSettings) -> Path:
    """Where a job's own process writes its errors; its ranks have logs of their own in the run folders."""
    ending = "out" if settings.stderr_to_stdout else "err"
    return Path(settings.submitit_folder.replace("%j", job_id)) / f"{job_id}_0_log.{ending}"


def _more(resources: Resources, settings: SlurmSettings, after: Sequence[str]) -> dict[str, Any]:
    """Parameters of sbatch that submitit does not know, or would take for tasks of its own."""
    more: dict[str, Any] = {
        "ntasks-per-node": resources.tasks_per_node,
        "signal": f"B:USR2@{settings.signal_delay_s}",
        "requeue": True,  # clusters with JobRequeue=0 would end a preempted job for good
    }
    if resources.gpus_per_node:
        kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
        more["gpus-per-node"] = f"{kind}{resources.gpus_per_node}"
    if resources.cpus_per_task:
        more["cpus-per-task"] = resources.cpus_per_task
    own = {key.replace("_", "-"): value for key, value in settings.additional_parameters.items()}
    own.pop("dependency", None)
    if words := dependency(settings, after):
        more["dependency"] = words
    if own.pop("no-requeue", False):
        del more["requeue"]
        more["no-requeue"] = True
    return more | own
