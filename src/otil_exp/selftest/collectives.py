"""Collectives and messages by size: what ranks pay to talk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import distributed as dist

from otil_exp.launch import launch
from otil_exp.selftest.clock import milliseconds
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State
from otil_exp.topology import RankContext, Topology, join, leave

GPU_SIZES = tuple(4096 * 4**power for power in range(9))
"""Bytes: 4 KiB to 256 MiB."""

CPU_SIZES = GPU_SIZES[:6]
"""4 KiB to 4 MiB."""

REPEATS = 20
TIMEOUT_S = 30.0

Curve = dict[int, float]
"""Bytes of the tensor that a rank contributes -> median ms, called from the host."""

SYNCHRONOUS_BYTES = 435_969_024
"""What a rank sends in a synchronous step of SDXL at 1024 x 1024, two slices, fp16 (benchmarks/several_gpus.md)."""

FAST_GB_S, SLOW_GB_S = 100.0, 10.0
"""all_gather of the largest size: from here on like NVLink; below that, like a network."""


def collectives(plan: Plan) -> Finding:
    """Time all_gather, all_reduce and a message to the next rank, at every size."""
    if plan.kind == "shared_gpu":
        raise LeftOutError("ranks that share a GPU talk through the host: their times say nothing")
    curves = launch(_on_rank, plan.ranks, plan)
    assert curves is not None, "rank 0 is started here"
    return judge_collectives(curves, plan)


def judge_collectives(curves: dict[str, Curve], plan: Plan) -> Finding:
    """What the curves come to. curves: by the collective's name."""
    figures = {f"{name}, ms by bytes": curve for name, curve in curves.items()}
    gathered = curves["all_gather"]
    smallest, largest = min(gathered), max(gathered)
    rate = largest * (plan.ranks - 1) / gathered[largest] / 1e6
    words = f"all_gather: {1e3 * gathered[smallest]:.0f} µs for {smallest} bytes, "
    words += f"{rate:.1f} GB/s for {largest >> 20} MiB"
    if plan.kind == "cpu":
        return Finding(State.fine, f"{words}, over gloo: says nothing about GPUs", figures)
    least = SYNCHRONOUS_BYTES / rate / 1e6
    words += f"; the 436 MB of a synchronous step of SDXL at 1024 x 1024 take {least:.1f} ms at least (projection)"
    if rate >= FAST_GB_S:
        return Finding(State.fine, words, figures)
    if rate >= SLOW_GB_S:
        advice = "take methods whose steady steps are silent (`guide`, `otil`, `balanced`): at 24 GB/s `otil` was 1.28 "
        advice += "times as fast as one GPU on two H200s, `full_sync` slower than one"
    else:
        advice = "such a link is a network's: at 4.3 GB/s every method but `guide` was slower than one of two H200s. "
        advice += "Split the batch alone (`2gpu_split`), or give each GPU pictures of its own"
    return Finding(State.slow, f"{words}: {advice}", figures)


def _on_rank(plan: Plan) -> dict[str, Curve]:
    ranks = join(Topology(world_size=plan.ranks, split_batch=False), plan.kind, TIMEOUT_S)
    curves = measure_curves(ranks, GPU_SIZES if plan.kind == "cuda" else CPU_SIZES)
    leave()
    return curves


def measure_curves(ranks: RankContext, sizes: Sequence[int], repeats: int = REPEATS) -> dict[str, Curve]:
    """Time every collective at every size (bytes, even); all ranks call it together."""
    return {
        name: {
            size: round(milliseconds(prepare(ranks, size), repeats, ranks.device, before=dist.barrier), 4)
            for size in sizes
        }
        for name, prepare in COLLECTIVES.items()
    }


def _all_gather(ranks: RankContext, size: int) -> Callable[[], object]:
    own = _values(ranks, size)
    parts = list(own.new_empty(ranks.topology.world_size * own.numel()).chunk(ranks.topology.world_size))
    return lambda: dist.all_gather(parts, own)


def _all_reduce(ranks: RankContext, size: int) -> Callable[[], object]:
    total = torch.zeros_like(_values(ranks, size))
    return lambda: dist.all_reduce(total)


def _message(ranks: RankContext, size: int) -> Callable[[], object]:
    """To the next rank, while one comes from the rank before."""
    world_size, own = ranks.topology.world_size, _values(ranks, size)
    received, after, before = torch.empty_like(own), (ranks.rank + 1) % world_size, (ranks.rank - 1) % world_size

    def swap() -> None:
        both = [dist.P2POp(dist.isend, own, after), dist.P2POp(dist.irecv, received, before)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return swap


COLLECTIVES = {"all_gather": _all_gather, "all_reduce": _all_reduce, "message": _message}
"""What is timed: name -> the call for a size, its tensors made."""


def _values(ranks: RankContext, size: int) -> torch.Tensor:
    return torch.ones(size // 2, dtype=torch.float16, device=ranks.device)
