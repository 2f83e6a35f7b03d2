"""How long OTIL's exchange of blocks takes: once a step, after the scheduler's step."""

from __future__ import annotations

import torch
from torch import distributed as dist

from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange import BlockGrid, LatentExchange, ReplayedExchange
from otil_exp.launch import launch
from otil_exp.selftest.clock import milliseconds
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State
from otil_exp.topology import RankContext, Topology, join, leave
from otil_exp.traffic import TrafficCounter

GRID, K_SENT = BlockGrid(32, 128, 8), 16
"""A slice of a picture of 1024 x 1024 on four ranks: 16 of its 64 blocks."""

REPEATS = 50
TIMEOUT_S = 30.0

SLOW_US = 3000.0
"""Two H200s took 0.85 to 1.03 ms, called (benchmarks/several_gpus.md)."""


def exchange_time(plan: Plan) -> Finding:
    """Time the exchange of an fp16 latent, called, and on GPUs replayed from a CUDA graph."""
    if plan.kind == "shared_gpu":
        raise LeftOutError("ranks that share a GPU exchange through the host: their times say nothing")
    times = launch(_on_rank, plan.ranks, plan, threads=1)
    assert times is not None, "rank 0 is started here"
    return judge_exchange(times, plan)


def judge_exchange(times: dict[str, float], plan: Plan) -> Finding:
    """What the times come to. times: µs, "called" and, on GPUs, "replayed"."""
    words = f"{K_SENT} of {GRID.count} blocks: " + ", ".join(f"{name} {us:.0f} µs" for name, us in times.items())
    figures = {f"{name}, us": round(us, 1) for name, us in times.items()}
    if plan.kind == "cpu":
        return Finding(State.fine, f"{words}, over gloo: says nothing about GPUs", figures)
    if times["called"] > SLOW_US:
        return Finding(
            State.slow,
            f"{words}: launching it keeps the host busy; give each rank a core of its own, and use engine=cuda_graph",
            figures,
        )
    return Finding(State.fine, words, figures)


def _on_rank(plan: Plan) -> dict[str, float]:
    ranks = join(Topology(world_size=plan.ranks, split_batch=False), plan.kind, TIMEOUT_S)
    times = _times(ranks)
    leave()
    return times


def _times(ranks: RankContext) -> dict[str, float]:
    """Microseconds; the graph is gone afterwards: NCCL waits for graphs of its collectives before it ends."""
    called = LatentExchange(GRID, ranks.slice_index, ranks.topology.slices, K_SENT, group=ranks.batch_group)
    shape = (1, 4, GRID.rows * ranks.topology.slices, GRID.width)
    latents = torch.randn(shape, device=ranks.device).half()
    called.remember(latents)
    ways: dict[str, LatentExchange | ReplayedExchange] = {"called": called}
    if ranks.device.type == "cuda":
        ways["replayed"] = replayed = ReplayedExchange(called, TrafficCounter(), CudaGraphRecorder())
        replayed.prepare(latents)
    return {
        name: 1e3 * milliseconds(lambda one=one: one.step(latents), REPEATS, ranks.device, before=dist.barrier)  # type: ignore[misc]
        for name, one in ways.items()
    }
