"""A rank's step without its peers: torch's fake process group answers at once, so what is missing is wire time."""

from __future__ import annotations

import gc
from collections import defaultdict
from statistics import fmean

import torch

from benchmarks.several_gpus.cells import cell, name_of
from benchmarks.several_gpus.plan import METHODS, Plan, keep
from otil_exp.fake_peers import among_fake_peers
from otil_exp.methods.geometry import topology_of
from otil_exp.pipeline import build_pipeline


def compute_only(plan: Plan) -> None:
    """Time each method's steps as rank 0 of the plan's ranks, of which the others are not there."""
    device = torch.device("cuda", 0) if plan.device == "cuda" else torch.device("cpu")
    pixels, _ = plan.sizes(1024)
    steps = "num_inference_steps=16"
    nosplit, split = plan.topologies
    for topology in (nosplit, split) if plan.world_size > 2 else (nosplit,):
        for method in METHODS:
            shape = (f"height={pixels}", f"width={pixels}", steps, f"engine={plan.engine}")
            one = cell(plan, method, topology, *shape).effective
            with torch.inference_mode(), build_pipeline(one, among_fake_peers(topology_of(one), device)) as pipeline:
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
