"""Run whole pipelines on real ranks: the latents and steps that tests of the methods look at."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import distributed as dist

from otil_exp import topology as t
from otil_exp.cells.normal_form import effective
from otil_exp.config import ExperimentConfig
from otil_exp.models.loading import Models
from otil_exp.pipeline import StepTrace, build_pipeline
from otil_exp.rank_unet import compiled_call
from otil_exp.topology import Topology
from ranks import run_ranks


@dataclass
class Result:
    """What one rank holds at the end of one picture."""

    latents: torch.Tensor
    steps: list[StepTrace]
    image: np.ndarray | None
    """None where the picture was not decoded."""


def run_pipelines(
    configs: list[ExperimentConfig],
    prompt: str,
    seed: int = 0,
    timeout: float = 240,
    decode: bool | Sequence[bool] = False,
) -> list[list[Result]]:
    """One picture for each config, all of one topology; results by config, then by rank. decode: all, none, which."""
    effectives = [effective(config) for config in configs]
    decoded = list(zip(effectives, [decode] * len(configs) if isinstance(decode, bool) else decode, strict=True))
    (topology,) = {(e.topology.world_size, e.topology.split_batch) for e in effectives}
    if topology[0] == 1:
        ranks = t.single_rank(torch.device("cpu"))
        models = Models()
        return [[_picture(config, ranks, models, prompt, seed, one)] for config, one in decoded]
    by_rank = run_ranks(topology[0], _on_rank, free_port(), topology, decoded, prompt, seed, timeout=timeout)
    return [list(results) for results in zip(*by_rank, strict=True)]


def _on_rank(
    rank: int,
    port: str,
    topology: tuple[int, bool],
    configs: list[tuple[ExperimentConfig, bool]],
    prompt: str,
    seed: int,
) -> list[Result]:
    compiled_call.BACKEND = "eager"  # of engine=compiled: what is looked at is the graph, not its speed
    ranks = joined(rank, topology, port)
    models = Models()
    results = [_picture(config, ranks, models, prompt, seed, decode) for config, decode in configs]
    t.leave()
    return results


def joined(rank: int, topology: tuple[int, bool], port: str) -> t.RankContext:
    """A rank of run_ranks as one of a run, by world_size and split_batch."""
    world_size, split_batch = topology
    leave_harness(rank, world_size, port)
    return t.join(Topology(world_size=world_size, split_batch=split_batch), "cpu", timeout_s=120)


def leave_harness(rank: int, world_size: int, port: str) -> None:
    """On a rank of `run_ranks`: leave its group and stand as launched ranks do; a run makes its own group."""
    dist.destroy_process_group()
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    )


def _picture(
    config: ExperimentConfig, ranks: t.RankContext, models: Models, prompt: str, seed: int, decode: bool
) -> Result:
    with build_pipeline(config, ranks, models, keep_weights=True) as pipeline:
        generated = pipeline(prompt, seed, decode=decode and pipeline.decodes)
    return Result(latents=generated.latents, steps=generated.steps, image=generated.image)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
