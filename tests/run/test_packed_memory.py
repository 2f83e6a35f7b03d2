"""Runs of one process: what a run has in memory does not depend on which runs were there before, or come after."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from composing import Compose, Typed
from otil_exp import topology as t
from otil_exp.cells.normal_form import effective
from otil_exp.cells.prepare import prepare
from otil_exp.config import ExperimentConfig
from otil_exp.models.loading import Models
from otil_exp.pipeline import RankPipeline, build_pipeline
from otil_exp.rank_unet import compiled_call
from otil_exp.run import execution
from otil_exp.run.execution import _clear, _weights_stay, execute
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from pipelines import free_port, joined
from ranks import run_ranks
from tiny_sdxl import tiny_pipeline, tiny_unet


def live_bytes() -> int:
    """Of all tensors that Python can reach, each storage once: what torch.cuda counts, on any device."""
    gc.collect()
    tensors = [o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter)]
    return sum({s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors)}.values())


def small_model(folder: Path) -> tuple[str, ...]:
    """What is typed for a model whose weights are some megabytes."""
    tiny_pipeline(tiny_unet(channels=(64, 128)), folder / "tokenizer").save_pretrained(folder / "model")
    return (f"model.source={folder / 'model'}", "model.architecture=files")


PARTS = {
    "eager": (),
    "half": ("model.dtype=bfloat16",),
    "compiled": ("engine=compiled",),
}


@pytest.fixture
def measured(composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Live bytes at the end of every run's first picture, beyond those before the job, by name of the run folder.

    The model has two levels: dynamo takes seconds a level, and four runs are compiled.
    """
    monkeypatch.setattr(compiled_call, "BACKEND", "eager")
    model = small_model(tmp_path)
    found, generate, before = dict[str, int](), execution.generate, live_bytes()

    def generate_and_measure(pipeline: RankPipeline, prompts: list, folder: RunFolder, tracker: object) -> None:
        generate(pipeline, prompts, folder, tracker)
        found[folder.path.name] = live_bytes() - before

    monkeypatch.setattr(execution, "generate", generate_and_measure)

    def run_of(kind: str, name: str) -> Cell:
        few = ("preset=reference", "device=cpu", "num_inference_steps=1", "warmup_steps=0", "prompts.limit=1")
        cell = prepare(composed(*few, *model, "height=64", "width=64", "metrics=none", *PARTS[kind]))
        return replace(cell, folder=RunFolder(tmp_path / "t" / name))

    try:
        for kind in PARTS:
            execute([run_of(kind, f"{kind} alone")], hosted=False)
        for job in (("eager", "half", "compiled"), ("compiled", "eager", "half"), ("half", "compiled", "eager")):
            execute([run_of(kind, f"{kind} {place}") for place, kind in enumerate(job)], hosted=False)
    finally:
        torch.compiler.reset()
    return found


def test_a_run_has_the_same_in_memory_at_every_place_of_its_job(measured: dict[str, int]) -> None:
    """A few kilobytes are tables that the process makes once."""
    for kind in PARTS:
        alone = measured[f"{kind} alone"]
        assert alone > 1e6
        for place in range(3):
            assert measured[f"{kind} {place}"] == pytest.approx(alone, abs=100_000), (kind, place)


METHODS = (
    *("naive_patch", "full_sync", "distrifusion", "guide", "otil", "balanced", "otil_context"),
    *("tensor", "tensor_stale", "fold", "asyncdiff", "step_reuse"),
)


@pytest.mark.ranks
def test_weights_are_kept_where_that_costs_a_run_nothing(typed: Typed, tmp_path: Path) -> None:
    """Of every method: live bytes of a pipeline beside kept weights are more where layers were cut up or dropped."""
    steps = ("topology=2gpu_nosplit", "num_inference_steps=3", "warmup_steps=0")
    small = (*small_model(tmp_path), "model.block_size=2", *steps, "height=64", "width=64")
    configs = [effective(typed(*small, f"preset={method}")) for method in METHODS]
    costly = {name for name, config in zip(METHODS, configs, strict=True) if not _weights_stay(config)}
    for held in run_ranks(2, measure, free_port(), configs, timeout=500):
        assert min(alone for alone, _ in held) > 1e6
        assert {name for name, (alone, kept) in zip(METHODS, held, strict=True) if kept - alone > 100_000} == costly


def measure(rank: int, port: str, configs: list[ExperimentConfig]) -> list[tuple[int, int]]:
    ranks = joined(rank, (2, False), port)
    gc.freeze()  # what is there already is in no difference, and a million objects are not looked through each time
    found = [(_held(config, ranks, keep=False), _held(config, ranks, keep=True)) for config in configs]
    t.leave()
    return found


def _held(config: ExperimentConfig, ranks: t.RankContext, *, keep: bool) -> int:
    before, models = live_bytes(), Models()
    with build_pipeline(config, ranks, models, keep_weights=keep):
        return live_bytes() - before


def test_what_libraries_hold_for_good_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS' workspaces first: they are blocks of the allocator, which then gives back what is free."""
    called: list[str] = []
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: called.append("workspaces"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("cache"))
    _clear(t.single_rank(torch.device("cuda", 0)))
    assert called == ["workspaces", "cache"]
