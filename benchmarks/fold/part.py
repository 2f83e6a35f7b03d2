"""A part of the fold as a job: build it, say so, wait for the word, time it."""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, cast

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from benchmarks.side_by_side import Files
from otil_exp.choices import Dtype, Engine, GnSync, Scheduler
from otil_exp.compile_cache import VARIABLE
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ModelConfig
from otil_exp.methods.staged_step import segment_engine
from otil_exp.models.architecture import architecture_of
from otil_exp.models.loading import Models
from otil_exp.rank_unet.engine_choice import choose_engine
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import slice_layers
from otil_exp.run_folder.whole import write_text
from otil_exp.schema import register_schema
from otil_exp.stages.cut import Cut, balanced_cuts, fold, named_cuts
from otil_exp.stages.parts import SegmentCall, keep_only
from otil_exp.stages.tape import TOKENS, Unit, tape
from otil_exp.stages.text import kept_outputs, take_projections
from otil_exp.stages.wiring import Segment
from otil_exp.topology import single_rank

REPEATS, REPEATS_ON_CPU = 20, 2


@dataclass(frozen=True)
class Part:
    """What is measured."""

    part: str
    """outer, inner or whole."""

    cut: str
    """default, every2 or a name; - for the whole UNet."""

    engine: str
    batch: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.part}_{self.cut.replace('/', '_')}_b{self.batch}_{self.engine}"


def run_part(case: Part, setting: dict[str, Any], files: Files) -> None:
    """What the process of a job does; leaves its figures as JSON beside its log."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ[VARIABLE] = cache  # compiled cold, whatever this machine has compiled before
        figures = measure(case, setting, files)
    write_text(files.path("json"), json.dumps(figures))


@torch.no_grad()
def measure(case: Part, setting: dict[str, Any], files: Files) -> dict[str, Any]:
    """One part alone.

    Keys and values of the text are there before, as in the steps of a picture: the outer part has all projections of
    them, the inner part none, and the whole UNet computes them at each call.
    """
    device = torch.device("cuda", 0) if setting["device"] == "cuda" else torch.device("cpu")
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    model, latent = _model(setting["model"], dtype), setting["size"] // 8
    units = tape(architecture_of(model).unet, latent, latent)
    segments = _segments(units, case)
    choice = choose_engine(Engine(case.engine), single_rank(device), exchanges_in_layers=False)

    unet = Models().load(model, Scheduler.ddim, device, unet_on_host=True).unet
    gc.collect()  # the other parts of the pipeline
    _sync(device, reset=True)
    if choice.compiled:
        slice_layers(unet, Slices(index=0, count=1, group=None, device=device), GnSync.off)
    projections = {} if case.part == "whole" else take_projections(unet)
    calls = {i: SegmentCall(unet, units, one) for i, one in enumerate(segments)}
    keep_only(unet, list(calls.values()))
    kept = kept_outputs(calls.values())
    linears = list(projections.values()) if case.part == "outer" else []
    del projections
    for module in (unet, *linears):
        module.to(device)
    for one in kept:
        one.give(torch.randn(case.batch, TOKENS, one.features, device=device, dtype=dtype))

    start = time.perf_counter()
    engine = segment_engine(unet, calls, choice)
    inputs = {i: _example(unet, units, one, case.batch, device, dtype) for i, one in enumerate(segments)}
    for index in calls:
        engine.prepare(index, inputs[index])
    _sync(device)
    ready_s = time.perf_counter() - start
    files.halt(single_rank(device))
    ms = timed(lambda: [engine.run(index, inputs[index]) for index in calls], device)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    return {
        **asdict(case),
        **setting,
        "cut": "-" if case.part == "whole" else _cut(units, case.cut).name(units),
        "runs_as": choice.sentence,
        "ms": round(ms, 3),
        "peak_mib": peak and round(peak),
        "weights_mib": round(sum(p.nbytes for one in (unet, *linears) for p in one.parameters()) / 2**20),
        "ready_s": round(ready_s, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
    }


def timed(call: Callable[[], Any], device: torch.device) -> float:
    """Median milliseconds of a call, after two that are not timed."""
    taken = []
    for _ in range(2 + (REPEATS if device.type == "cuda" else REPEATS_ON_CPU)):
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


def _segments(units: tuple[Unit, ...], case: Part) -> list[Segment]:
    if case.part == "whole":
        return [Segment(0, len(units), 0)]
    stage = 0 if case.part == "outer" else 1
    return [segment for segment in fold(units, [_cut(units, case.cut)]) if segment.stage == stage]


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


def _model(name: str, dtype: torch.dtype) -> ModelConfig:
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        model = cast(ModelConfig, OmegaConf.to_object(compose("config", [f"model={name}"]).model))
    model.dtype = Dtype.float16 if dtype is torch.float16 else Dtype.float32
    return model


def _sync(device: torch.device, reset: bool = False) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
        if reset:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
