"""The collectives themselves: latency and bandwidth of all_gather, and whether a CUDA graph can hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import distributed as dist

from benchmarks.several_gpus.gpu_clock import milliseconds
from benchmarks.several_gpus.plan import Plan, keep
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange import BlockGrid, LatentExchange, ReplayedExchange
from otil_exp.launch import launch
from otil_exp.topology import RankContext, Topology, join, leave
from otil_exp.traffic import TrafficCounter

SIZES = tuple(4096 * 4**power for power in range(9))
"""Bytes a rank contributes: 4 KiB to 256 MiB."""

TIMEOUT_S = 30.0


def collectives(plan: Plan) -> None:
    """Time all_gather at every size, called from the host."""
    assert plan.device == "cuda", "what is timed is NCCL: leave the part `collectives` out"
    launch(_collectives, plan.world_size, plan)


def capture(plan: Plan) -> None:
    """Say for a blocking and an asynchronous all_gather and all_reduce whether a graph holds them and is right."""
    assert plan.device == "cuda", "graphs need a GPU: leave the part `capture` out"
    launch(_capture, plan.world_size, plan)


def exchange(plan: Plan) -> None:
    """Time OTIL's exchange of 16 of 64 blocks a slice of an fp16 latent, called and replayed from a CUDA graph."""
    assert plan.device == "cuda", "what is timed is NCCL: leave the part `exchange` out"
    launch(_exchange, plan.world_size, plan)


def _join(plan: Plan) -> RankContext:
    return join(Topology(world_size=plan.world_size, split_batch=False), plan.device, TIMEOUT_S)


def _collectives(plan: Plan) -> None:
    ranks = _join(plan)
    times = []
    for size in SIZES:
        own = torch.ones(size // 2, dtype=torch.float16, device=ranks.device)
        everyone = torch.empty(plan.world_size * own.numel(), dtype=own.dtype, device=ranks.device)
        parts = list(everyone.chunk(plan.world_size))
        times.append(milliseconds(lambda parts=parts, own=own: dist.all_gather(parts, own), 20, before=dist.barrier))
        if ranks.is_main:
            sent = size * (plan.world_size - 1)
            keep("collectives", f"{size}", {"ms": times[-1], "GB/s": round(sent / times[-1] / 1e6, 2)}, plan)
    if ranks.is_main:
        slope, intercept = np.polyfit([size * (plan.world_size - 1) for size in SIZES[3:]], times[3:], 1)
        fit = {"alpha_us_smallest": round(times[0] * 1e3, 1), "beta_GB_s": round(1e-6 / slope, 1)}
        keep("collectives", "fit", fit | {"intercept_us": round(intercept * 1e3, 1)}, plan)
    leave()


def _exchange(plan: Plan) -> None:
    ranks = _join(plan)
    for name, time in _exchange_times(ranks).items():
        if ranks.is_main:
            keep("exchange", f"K=64, k=16, {plan.world_size} slices, {name}, us", round(1e3 * time, 1), plan)
    leave()


def _exchange_times(ranks: RankContext) -> dict[str, float]:
    """Milliseconds; the graph is gone afterwards: NCCL waits for graphs of its collectives before it ends."""
    grid, slices = BlockGrid(32, 128, 8), ranks.topology.slices
    called = LatentExchange(grid, ranks.slice_index, slices, k=16, group=ranks.batch_group)
    latents = torch.randn(1, 4, grid.rows * slices, grid.width, device=ranks.device, dtype=torch.float16)
    replayed = ReplayedExchange(called, TrafficCounter(), CudaGraphRecorder())
    replayed.prepare(latents)
    return {
        name: milliseconds(lambda one=one: one.step(latents), 50, before=dist.barrier)
        for name, one in (("called", called), ("replayed", replayed))
    }


def _capture(plan: Plan) -> None:
    ranks = _join(plan)
    own = torch.zeros(1 << 20, device=ranks.device)
    parts = [torch.empty_like(own) for _ in range(plan.world_size)]

    def gathered(asynchronous: bool) -> torch.Tensor:
        work = dist.all_gather(parts, own, async_op=asynchronous)
        other = own * 2  # what an asynchronous collective may hide behind
        if work is not None:
            work.wait()
        return torch.stack(parts).sum(0) + 0 * other

    def reduced(asynchronous: bool) -> torch.Tensor:
        total = own.clone()
        work = dist.all_reduce(total, async_op=asynchronous)
        if work is not None:
            work.wait()
        return total

    for name, call in {"all_gather": gathered, "all_reduce": reduced}.items():
        for asynchronous in (False, True):
            outcome = _captured(lambda call=call, a=asynchronous: call(a), own, plan.world_size)
            if ranks.is_main:
                keep("capture", f"{name}{' async_op' if asynchronous else ''}", outcome, plan)
    leave()


def _captured(call: Callable[[], torch.Tensor], own: torch.Tensor, world_size: int) -> str:
    """Capture and replay with three different inputs."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            output = call()
        for value in (1.0, 2.0, 3.0):
            own.fill_(value)
            graph.replay()
            torch.cuda.synchronize()
            if not bool((output == value * world_size).all()):
                return f"replay of {value} is wrong: {output.unique().tolist()[:4]}"
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "captured, right in 3 replays"
