"""Which engine the steps of a method really get, and why when it is not the one asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from torch import distributed as dist

from otil_exp.choices import Engine, GroupNormKind, Parallelism, SyncMode
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.checks import check_graphs
from otil_exp.upstream.engine import CudaGraphs, Eager, FixedPlaces, StepEngine

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineChoice:
    """How the steps of a run are executed."""

    engine: Callable[[TrafficCounter], StepEngine]
    compiled: bool
    """Whether the UNet is one compiled graph."""

    captured: bool
    """Whether steps are replayed as CUDA graphs."""

    sentence: str
    """For the record: what runs, and why, if it is not what was asked for."""


def choose_engine(
    engine: Engine,
    ranks: RankContext,
    parallelism: Parallelism,
    sync_mode: SyncMode | None,
    groupnorm: GroupNormKind,
    *,
    blockwise: bool,
) -> EngineChoice:
    """The engine of a method. blockwise: its layer context is exchanged block by block.

    Raises ValueError where engine=cuda_graph is impossible (checks.check_graphs).
    """
    if engine is Engine.eager:
        return EngineChoice(lambda traffic: Eager(), False, False, "eager")
    if engine is Engine.cuda_graph:
        check_graphs(ranks, parallelism)
        return EngineChoice(_graphs, False, True, "cuda_graph")
    exchanging = ranks.topology.slices > 1 and parallelism in (Parallelism.patch, Parallelism.tensor)
    captured = ranks.device.type == "cuda" and not (exchanging and dist.get_backend() == "gloo")
    obstacle = _obstacle(parallelism, sync_mode, groupnorm, blockwise) if exchanging else None
    if obstacle is None:
        sentence = "compiled, replayed as CUDA graphs" if captured else "compiled, called without a CUDA graph"
        return EngineChoice(_graphs if captured else lambda traffic: FixedPlaces(), True, captured, sentence)
    instead = _graphs if captured else lambda traffic: Eager()
    sentence = f"{'cuda_graph' if captured else 'eager'}, because {obstacle}"
    if ranks.is_main:
        log.warning("engine=compiled runs as %s", sentence)
    return EngineChoice(instead, False, captured, sentence)


def _obstacle(
    parallelism: Parallelism, sync_mode: SyncMode | None, groupnorm: GroupNormKind, blockwise: bool
) -> str | None:
    """Why the steps of a method whose layers exchange cannot be compiled whole."""
    if parallelism is Parallelism.tensor:
        return "tensor parallelism exchanges inside every layer of distrifuser, which cannot be compiled whole"
    if sync_mode not in (SyncMode.no_sync, SyncMode.full_sync):
        return f"sync_mode={sync_mode} sends while layers compute, which a compiled graph cannot hold"
    if blockwise:
        return "layer context is exchanged block by block between distrifuser's layers, which cannot be compiled whole"
    if groupnorm is GroupNormKind.upstream:
        return "groupnorm=upstream is distrifuser's own code, which cannot be compiled whole"
    return None


def _graphs(traffic: TrafficCounter) -> StepEngine:
    return CudaGraphs(traffic, CudaGraphRecorder())
