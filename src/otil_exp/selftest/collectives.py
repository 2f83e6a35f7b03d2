"""Collectives and messages by size: what ranks pay to talk."""

from __future__ import annotations

import platform

from otil_exp.launch import launch
from otil_exp.links import Links, write_links
from otil_exp.links.link import WIRE_BYTES
from otil_exp.links.measure import SIZES, measure_links
from otil_exp.selftest.plan import CURVE, LINKS_FILE, Finding, LeftOutError, Plan, State
from otil_exp.topology import Topology, join, leave

CPU_SIZES = SIZES[:6]
"""4 KiB to 4 MiB."""

TIMEOUT_S = 30.0

SYNCHRONOUS_BYTES = 435_969_024
"""What a rank sends in a synchronous step of SDXL at 1024 x 1024, two slices, fp16 (benchmarks/several_gpus.md)."""

FAST_GB_S, SLOW_GB_S = 100.0, 10.0
"""all_gather of the largest size: from here on like NVLink; below that, like a network."""


def collectives(plan: Plan) -> Finding:
    """Time every operation that methods use, at every size."""
    if plan.kind == "shared_gpu":
        raise LeftOutError("ranks that share a GPU talk through the host: their times say nothing")
    links = launch(_on_rank, plan.ranks, plan)
    assert links is not None, "rank 0 is started here"
    write_links(links, plan.folder / LINKS_FILE)
    return judge_collectives(links, plan)


def judge_collectives(links: Links, plan: Plan) -> Finding:
    """What the curves come to."""
    figures = {
        f"{curve.operation}{CURVE}": {str(size): round(1e3 * seconds, 4) for size, seconds in curve.points}
        for curve in links.curves
    }
    [gathered] = [curve for curve in links.curves if curve.operation == "all_gather"]
    (smallest, quickest), (largest, seconds) = gathered.points[0], gathered.points[-1]
    rate = WIRE_BYTES["all_gather"](largest, plan.ranks) / seconds / 1e9
    words = f"all_gather: {1e6 * quickest:.0f} µs for {smallest} bytes, {rate:.1f} GB/s for {largest >> 20} MiB"
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


def _on_rank(plan: Plan) -> Links:
    ranks = join(Topology(world_size=plan.ranks, split_batch=False), plan.kind, TIMEOUT_S)
    name = f"{plan.ranks} ranks of {platform.node()}"
    links = measure_links(name, ranks.device, sizes=SIZES if plan.kind == "cuda" else CPU_SIZES)
    leave()
    return links
