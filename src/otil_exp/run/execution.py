"""What every rank of a run does, from joining the others to leaving them."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import torch

from otil_exp.config import ExperimentConfig, Mode, to_plain
from otil_exp.pipeline import build_pipeline
from otil_exp.prompts import Prompt
from otil_exp.run.benchmark import benchmark
from otil_exp.run.failure import note_failure
from otil_exp.run.folder import RunFolder
from otil_exp.run.generation import generate
from otil_exp.run.provenance import now, provenance
from otil_exp.run.signature import picture_key, signature
from otil_exp.topology import RankContext, Topology, join, leave
from otil_exp.tracking import tracked


def execute(
    effective: ExperimentConfig, composed: dict[str, Any], prompts: list[Prompt], path: str, hosted: bool
) -> None:
    """Run one cell on this rank: the entry point of every process of a job.

    effective: what is run; composed: what the user composed, for config.yaml; path: the run folder; hosted: others
    (torchrun, a scheduler) started the ranks, so nobody else notes which one failed.
    Raises what went wrong on this rank.
    """
    topology = Topology(world_size=effective.topology.world_size, split_batch=effective.topology.split_batch)
    folder = RunFolder(Path(path))
    try:
        ranks = join(topology, effective.device.kind.name, effective.launch.collective_timeout_s)
        perform(ranks, effective, composed, prompts, folder)
        leave()
    except Exception as error:
        if hosted and folder.record.get("status") == "running":  # who fails next may do so because of the first
            message = f"{type(error).__name__}: {error}"
            note_failure(folder, int(os.environ.get("RANK", 0)), message, traceback.format_exc())
        raise


def perform(
    ranks: RankContext,
    effective: ExperimentConfig,
    composed: dict[str, Any],
    prompts: list[Prompt],
    folder: RunFolder,
) -> None:
    """Run one cell on ranks that have joined each other; they may perform several, one after the other.

    Raises what went wrong on this rank.
    """
    if ranks.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(ranks.device)
    if ranks.is_main:
        _begin(folder, effective, composed, prompts)
    with tracked(effective, folder, ranks.is_main) as tracker:
        with build_pipeline(effective, ranks) as pipeline:
            if effective.mode is Mode.generate:
                generate(pipeline, prompts, folder, tracker)
            else:
                benchmark(pipeline, prompts, folder)
        if ranks.is_main:
            folder.update_record(status="done", ended=now(), peak_memory_mib=_peak_memory_mib(ranks))


def _begin(folder: RunFolder, effective: ExperimentConfig, composed: dict[str, Any], prompts: list[Prompt]) -> None:
    folder.write_config(composed)
    before = folder.record
    folder.update_record(
        status="running",
        signature=signature(effective, prompts),
        picture_key=picture_key(effective),
        method=effective.preset.name,
        effective=_effective_facts(effective),
        engine=effective.engine.name.name,
        topology={"world_size": effective.topology.world_size, "split_batch": effective.topology.split_batch},
        device=effective.device.kind.name,
        times_meaningless=_times_meaningless(effective),
        prompts=[{"index": prompt.index, "text": prompt.text, "seed": prompt.seed} for prompt in prompts],
        started=before.get("started", now()),
        resumed=[*before.get("resumed", []), now()] if before else [],
        ended=None,
        failed_rank=None,
        error=None,
        traceback=None,
        **provenance(),
    )


def _effective_facts(effective: ExperimentConfig) -> dict[str, Any]:
    """What the method really used, after normalisation."""
    return {
        "k": int(effective.k.budget) or None,
        "refresh_period": effective.refresh.period,
        "warmup_steps": effective.warmup_steps if effective.warmup_steps >= 0 else None,
        "groupnorm": effective.groupnorm.name,
        "cfg_repair": effective.preset.cfg_repair,
        "preset": to_plain(effective)["preset"],
    }


def _times_meaningless(effective: ExperimentConfig) -> str | None:
    """Why the times of this run must not be compared, or None."""
    shared = {"shared_gpu": "one GPU", "cpu": "one CPU"}.get(effective.device.kind.name)
    return f"all ranks shared {shared}" if shared and effective.topology.world_size > 1 else None


def _peak_memory_mib(ranks: RankContext) -> float | None:
    """Most GPU memory rank 0's tensors took, MiB; None without a GPU."""
    if ranks.device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(ranks.device) / 2**20, 1)
