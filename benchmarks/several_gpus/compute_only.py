"""A rank's step without its peers: torch's fake process group answers at once, so what is missing is wire time."""

from __future__ import annotations

import gc
from collections import defaultdict
from statistics import fmean

import torch
from cells import cell, name_of
from plan import METHODS, Plan, keep
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.pipeline import build_pipeline
from otil_exp.topology import RankContext, Topology


def compute_only(plan: Plan) -> None:
    """Time each method's steps as rank 0 of the plan's ranks, of which the others are not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=plan.world_size)
    pixels, _ = plan.sizes(1024)
    steps = "num_inference_steps=16"
    nosplit, split = plan.topologies
    for topology in (nosplit, split) if plan.world_size > 2 else (nosplit,):
        for method in METHODS:
            shape = (f"height={pixels}", f"width={pixels}", steps, f"engine={plan.engine}")
            one = cell(plan, method, topology, *shape).effective
            with torch.inference_mode(), build_pipeline(one, _rank_0(one.topology.split_batch, plan)) as pipeline:
                for _ in range(2):  # the first picture starts libraries up
                    traces = pipeline("a", seed=0, decode=False).steps
                by_kind = defaultdict(list)
                for trace in traces:
                    by_kind[trace.step.kind].append(trace.ms)
                kinds = {kind: round(fmean(times), 3) for kind, times in by_kind.items()}
                keep("compute_only", name_of(one), kinds, plan)
            del pipeline
            gc.collect()
            torch.cuda.empty_cache()


def _rank_0(split_batch: bool, plan: Plan) -> RankContext:
    topology = Topology(world_size=plan.world_size, split_batch=split_batch)
    groups = [dist.new_group(members) for members in (topology.batch_ranks(0), topology.pair_ranks(0))]
    device = torch.device("cuda", 0) if plan.device == "cuda" else torch.device("cpu")
    slices = groups[0] if topology.slices > 1 else None
    return RankContext(
        topology=topology,
        rank=0,
        local_rank=0,
        device=device,
        batch_group=slices,
        pair_group=groups[1] if split_batch else None,
    )
