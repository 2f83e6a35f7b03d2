"""The parts of the fold alone on one GPU; one line of JSON for each figure.

    python -m benchmarks.fold parts [--engines cuda_graph,compiled] [--sizes 1024] [--batch 1] [--cuts default,...]

parts: the outer part (its way down and up) and the inner part of each cut, and the whole UNet likewise, each in a
process of its own: milliseconds a call (median of 20), peak memory, seconds until the first call was over. The slower
part is the step. `default` stands for the balanced cut, `every2` for that of preset.every=2.
Keys and values of the text are there before, as in the steps of a picture: the outer part has all projections of them,
the inner part none, and the whole UNet computes them at each call.
--model is one of conf/model, as for otil-exp. On a CPU: --model shapes --device cpu --sizes 256 --engines eager.
Whole pictures on several GPUs are `otil-exp -m experiment=bench/fold` and `experiment=bench/fold_every`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, cast

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from otil_exp.choices import Dtype, Engine, GnSync, Scheduler
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ModelConfig
from otil_exp.methods.staged_step import segment_engine
from otil_exp.models.architecture import architecture_of
from otil_exp.models.loading import Models
from otil_exp.rank_unet.engine_choice import choose_engine
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import slice_layers
from otil_exp.schema import register_schema
from otil_exp.stages.cut import Cut, balanced_cuts, fold, named_cuts
from otil_exp.stages.parts import SegmentCall, keep_only
from otil_exp.stages.tape import TOKENS, Unit, tape
from otil_exp.stages.text import kept_outputs, take_projections
from otil_exp.stages.wiring import Segment
from otil_exp.topology import single_rank

CUTS = "default,down1.down/up0.attn1,every2"
"""Balanced; AsyncDiff's; a third of the work outside."""

PARTS = ("whole", "outer", "inner")
REPEATS = 20


def main() -> int:
    options = _options()
    if options.command == "part":
        print(json.dumps(measure(options)), flush=True)
        return 0
    return parts(options)


def parts(options: argparse.Namespace) -> int:
    """Each part in a process of its own, so that memory and compile time are its alone."""
    failed = 0
    for size in options.sizes.split(","):
        for engine in options.engines.split(","):
            wanted = [("whole", "-"), *((part, cut) for cut in options.cuts.split(",") for part in PARTS[1:])]
            for part, cut in wanted:
                job = ("part", f"--part={part}", f"--cut={cut}", f"--sizes={size}", f"--engines={engine}")
                rest = (f"--batch={options.batch}", f"--model={options.model}", f"--device={options.device}")
                failed += subprocess.run([sys.executable, "-m", "benchmarks.fold", *job, *rest]).returncode != 0
    return 1 if failed else 0


@torch.no_grad()
def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One part alone."""
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    latent = int(options.sizes) // 8
    unet = _unet(options.model, device, dtype)
    units = tape(architecture_of(_model(options.model)).unet, latent, latent)
    segments = _segments(units, options.part, options.cut)
    choice = choose_engine(Engine(options.engines), single_rank(device), exchanges_in_layers=False)
    if choice.compiled:
        slice_layers(unet, Slices(index=0, count=1, group=None, device=device), GnSync.off)
    projections = {} if options.part == "whole" else take_projections(unet)
    calls = {i: SegmentCall(unet, units, one) for i, one in enumerate(segments)}
    keep_only(unet, list(calls.values()))
    for one in kept_outputs(calls.values()):
        one.give(torch.randn(options.batch, TOKENS, one.features, device=device, dtype=dtype))
    if options.part == "inner":
        projections.clear()
    weights = sum(p.numel() * p.element_size() for one in (unet, *projections.values()) for p in one.parameters())
    _sync(device, reset=True)
    start = time.perf_counter()
    engine = segment_engine(unet, calls, choice)
    inputs = {i: _example(unet, units, one, options.batch, device, dtype) for i, one in enumerate(segments)}
    for index in calls:
        engine.prepare(index, inputs[index])
    _sync(device)
    ready_s = time.perf_counter() - start
    ms = timed(lambda: [engine.run(index, inputs[index]) for index in calls], device)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    return {
        "figure": "part",
        "model": options.model,
        "part": options.part,
        "cut": "-" if options.part == "whole" else _cut(units, options.cut).name(units),
        "size": int(options.sizes),
        "batch": options.batch,
        "runs_as": choice.sentence,
        "ms": round(ms, 3),
        "peak_mib": peak and round(peak),
        "weights_mib": round(weights / 2**20),
        "ready_s": round(ready_s, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
    }


def timed(call: Callable[[], Any], device: torch.device) -> float:
    """Median milliseconds of a call, after two that are not timed."""
    taken = []
    for _ in range(REPEATS + 2):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            taken.append(begin.elapsed_time(end))
        else:
            start = time.perf_counter()
            call()
            taken.append(1e3 * (time.perf_counter() - start))
    return median(taken[2:])


def _segments(units: tuple[Unit, ...], part: str, cut: str) -> list[Segment]:
    if part == "whole":
        return [Segment(0, len(units), 0)]
    stage = 0 if part == "outer" else 1
    return [segment for segment in fold(units, [_cut(units, cut)]) if segment.stage == stage]


def _cut(units: tuple[Unit, ...], name: str) -> Cut:
    if name in ("default", "every2"):
        return balanced_cuts(units, 2, every=2 if name == "every2" else 1)[0]
    return named_cuts(units, [name])[0]


def _example(
    unet: Any, units: tuple[Unit, ...], segment: Segment, batch: int, device: torch.device, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Inputs of a segment: what it is told, its state, the skips it takes."""

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(batch, *shape, device=device, dtype=dtype)

    told = [torch.full((batch,), 500.0, device=device), made(TOKENS, unet.config.cross_attention_dim)]
    if unet.config.addition_embed_type == "text_time":
        width = unet.config.projection_class_embeddings_input_dim - 6 * unet.config.addition_time_embed_dim
        told += [made(width), made(6)]
    if not segment.start:
        return [*told, made(units[-1].channels, units[0].height, units[0].width)]
    before = units[segment.start - 1]
    shape = (before.channels, before.height, before.width)
    state = [made(before.height * before.width, before.channels), made(*shape)] if before.inside else [made(*shape)]
    skips = [made(units[i].channels, units[i].height, units[i].width) for i in segment.takes(units)]
    return [*told, *state, *skips]


def _model(name: str) -> ModelConfig:
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return cast(ModelConfig, OmegaConf.to_object(compose("config", [f"model={name}"]).model))


def _unet(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    config = _model(name)
    config.dtype = Dtype.float16 if dtype is torch.float16 else Dtype.float32
    return Models().load(config, Scheduler.ddim, device).unet


def _sync(device: torch.device, reset: bool = False) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
        if reset:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("parts", "part"):
        command = commands.add_parser(name)
        command.add_argument("--model", default="sdxl_random")
        command.add_argument("--device", default="cuda")
        command.add_argument("--sizes", default="1024", help="pixels, one or more")
        command.add_argument("--engines", default="cuda_graph,compiled")
        command.add_argument("--batch", type=int, default=1)
        command.add_argument("--cuts", default=CUTS)
        command.add_argument("--cut", default="default")
        command.add_argument("--part", choices=PARTS, default="whole")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
