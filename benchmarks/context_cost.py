"""What a step of otil_context costs one rank of four on one GPU, its peers being torch's fake process group.

    python -m benchmarks.context_cost [--model sdxl_random] [--device cuda] [--methods 0,1,...]

Prints one Markdown row a method: step times (CUDA graphs on a GPU), bytes a step by kind, peak memory; for otil_context
also the GPU time of choosing, packing and unpacking, launches queued behind a busy GPU so that the host's are hidden.
Nothing crosses a wire: what a peer would send is the rank's own.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from otil_exp.cells.prepare import prepare
from otil_exp.choices import Engine
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.fake_peers import among_fake_peers
from otil_exp.methods.geometry import topology_of
from otil_exp.pipeline import RankPipeline, build_pipeline
from otil_exp.schema import register_schema

METHODS = (
    ("otil_context", "k=quarter"),
    ("distrifusion",),
    ("otil_context", "k=all"),
    ("otil_context", "k=quarter", "codec=int8"),
    ("otil_context", "k=quarter", "codec=residual"),
    ("otil",),
    ("tensor",),
    ("tensor_stale",),
    ("tensor_stale", "preset.stale=all"),
)
STEPS = ("num_inference_steps=12", "warmup_steps=2", "prompts.limit=1", "metrics=none", "refresh=never")
REPEATS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sdxl_random")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--topology", default="4gpu_split")
    parser.add_argument("--methods", default=",".join(map(str, range(len(METHODS)))), help="positions in METHODS")
    options = parser.parse_args()
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    for method in (METHODS[int(position)] for position in options.methods.split(",")):
        config = effective(options, method)
        with build_pipeline(config, among_fake_peers(topology_of(config), device)) as pipeline:
            print(f"| {' '.join(method)} | {cost(pipeline)} |", flush=True)
        del pipeline
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    return 0


def effective(options: argparse.Namespace, method: tuple[str, ...]) -> ExperimentConfig:
    """The config of a method, as otil-exp composes it."""
    preset, *settings = method
    on_gpu = options.device == "cuda"
    where = ("device=shared_gpu",) if on_gpu else ("device=cpu", "model.dtype=float32")
    what = (f"preset={preset}", f"topology={options.topology}", f"model={options.model}")
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        composed = compose("config", [*what, *where, *STEPS, *settings])
    config = prepare(composed).effective
    if on_gpu:  # shared_gpu refuses graphs for the sake of gloo, which is not used here
        config.engine.name = Engine.cuda_graph
    return config


def cost(pipeline: RankPipeline) -> str:
    """Steps by kind, memory, and the parts of the exchange."""
    for _ in range(2):  # the first picture starts libraries up
        traces = pipeline("a", seed=0, decode=False).steps
    times, sent = defaultdict(list), {}
    for trace in traces:
        times[trace.step.kind].append(trace.ms)
        sent[trace.step.kind] = trace.traffic
    means = {kind: fmean(values[1:] or values) for kind, values in times.items()}
    steps = ", ".join(
        f"{kind} {mean:.2f} ms, {sent[kind].bytes_sent:,} B in {sent[kind].collectives}" for kind, mean in means.items()
    )
    memory = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0
    context = getattr(pipeline.unet.method, "_context", None)  # its parts, which no interface needs apart
    parts = "" if context is None else f"; {parts_of(context, pipeline)}"
    return f"{steps}; {memory:,.0f} MiB{parts}"


def parts_of(context: Any, pipeline: RankPipeline) -> str:
    """Milliseconds of choosing, packing with sending, and unpacking: median over repeats."""
    shape = pipeline.unet._sample_shape
    latents = torch.randn(shape, device=pipeline.ranks.device, dtype=pipeline.unet.dtype)
    context.after_step(latents, True)
    chosen = context._choose(context._blocks(latents, False))
    state: dict[str, Any] = {}

    def pack() -> None:
        context._send(chosen)

    def unpack() -> None:
        context.receive()

    def choose() -> None:
        state["chosen"] = context._choose(context._blocks(latents, False))

    taken: dict[str, list[float]] = {"choose": [], "pack": [], "unpack": []}
    for _ in range(REPEATS):
        for name, part in (("choose", choose), ("pack", pack), ("unpack", unpack)):
            taken[name].append(gpu_ms(part, pipeline.ranks.device))
    return ", ".join(f"{name} {median(values):.3f} ms" for name, values in taken.items())


def gpu_ms(part: Callable[[], None], device: torch.device) -> float:
    """GPU time of what `part` queues, milliseconds; 0 without a GPU."""
    if device.type != "cuda":
        part()
        return 0.0
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(20_000_000)  # about 10 ms, in which the host queues everything
    start.record()
    part()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


if __name__ == "__main__":
    sys.exit(main())
