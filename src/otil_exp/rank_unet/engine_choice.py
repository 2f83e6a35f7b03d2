"""Which engine the steps of a method get."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import distributed as dist

from otil_exp.choices import Engine
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.rank_unet.engine import CudaGraphs, Eager, FixedPlaces, StepEngine
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


@dataclass(frozen=True)
class EngineChoice:
    """How the steps of a run are executed."""

    engine: Callable[[TrafficCounter], StepEngine]
    compiled: bool
    """Whether the UNet is one compiled graph."""

    captured: bool
    """Whether steps are replayed as CUDA graphs."""

    sentence: str
    """For the record: what runs."""


def choose_engine(engine: Engine, ranks: RankContext, *, exchanges_in_layers: bool) -> EngineChoice:
    """The engine of a rank's steps. exchanges_in_layers: collectives lie inside the UNet.

    Raises ValueError where engine=cuda_graph is impossible: without a GPU, and of collectives that run on the host.
    """
    if engine is Engine.eager:
        return EngineChoice(lambda traffic: Eager(), False, False, "eager")
    on_host = exchanges_in_layers and dist.get_backend() == "gloo"
    captured = ranks.device.type == "cuda" and not on_host
    if engine is Engine.cuda_graph:
        _check_graphs(ranks, on_host)
        return EngineChoice(_graphs, False, True, "cuda_graph")
    sentence = "compiled, replayed as CUDA graphs" if captured else "compiled, called without a CUDA graph"
    return EngineChoice(_graphs if captured else lambda traffic: FixedPlaces(), True, captured, sentence)


def forgets_graphs() -> ExitStack:
    """What closes a compiled method: PyTorch keeps so many graphs for one function, and each cell makes its own."""
    undo = ExitStack()
    undo.callback(torch.compiler.reset)
    return undo


def _check_graphs(ranks: RankContext, on_host: bool) -> None:
    """Refuse CUDA graphs without a GPU, and of layers whose collectives run on the host."""
    if ranks.device.type != "cuda":
        raise ValueError(f"engine=cuda_graph needs a GPU, and this rank is on {ranks.device}: use engine=eager")
    if on_host:
        raise ValueError(
            "engine=cuda_graph cannot capture collectives over gloo, which run on the host: use engine=eager, or "
            "device=cuda (NCCL)"
        )


def _graphs(traffic: TrafficCounter) -> StepEngine:
    return CudaGraphs(traffic, CudaGraphRecorder())
