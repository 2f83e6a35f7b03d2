"""How far pictures of engine=compiled are from those of distrifuser's layers in CUDA graphs, on the same GPUs."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from benchmarks.several_gpus.cells import cell, short
from benchmarks.several_gpus.compiled import PATIENT
from benchmarks.several_gpus.plan import Plan, keep
from otil_exp.config import ExperimentConfig
from otil_exp.launch import RankFailure, launch
from otil_exp.methods.geometry import topology_of
from otil_exp.pipeline import build_pipeline
from otil_exp.run_folder.cell import Cell
from otil_exp.topology import join, leave, meet

METHODS = ("guide", "otil")


def compare_compiled(plan: Plan) -> None:
    """Make one picture of each method both ways, methods side by side, and compare latents and pictures."""
    pairs = [_pair(method, plan) for method in METHODS]
    with ThreadPoolExecutor() as threads:  # each waits for the ranks of its job
        for method, outcome in zip(METHODS, threads.map(_compared, pairs), strict=True):
            keep("compiled_pictures", f"{method}, compiled to {plan.engine}", outcome, plan)


def _pair(method: str, plan: Plan) -> list[Cell]:
    """A picture of few steps in the engine that is compared with, and compiled."""
    return [
        cell(plan, method, plan.topologies[0], *short(plan, 10), f"engine={engine}", "name=compiled_pictures", PATIENT)
        for engine in (plan.engine, plan.compiling)
    ]


def _compared(pair: list[Cell]) -> dict[str, float] | str:
    effective = [one.effective for one in pair]
    logs = pair[0].folder.logs
    try:
        made = launch(_made, effective[0].topology.world_size, effective, log_dir=logs)
    except RankFailure as failure:
        return str(failure)[-3000:]
    assert made is not None
    (latents, image), (compiled_latents, compiled_image) = made
    error = np.mean((image - compiled_image) ** 2)
    return {
        "latents_relative_2_norm": float(np.linalg.norm(compiled_latents - latents) / np.linalg.norm(latents)),
        "psnr_db": round(float(10 * np.log10(1 / error)), 2) if error else float("inf"),
    }


def _made(configs: list[ExperimentConfig]) -> list[Any]:
    """On each rank: latents and picture of each config, float64."""
    first = configs[0]
    ranks = join(topology_of(first), first.device.kind.name, first.launch.collective_timeout_s)
    made: list[Any] = []
    for config in configs:
        with build_pipeline(config, ranks) as pipeline:
            generated = pipeline("a red circle on a blue square", seed=0, decode=ranks.is_main)
        latents = generated.latents.double().cpu().numpy()
        made.append((latents, None if generated.image is None else generated.image.astype(np.float64)))
        del pipeline
        meet()
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
    leave()
    return made
