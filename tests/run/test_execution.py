"""Runs one after the other in one process: each is as it would be alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.models.loading import Models
from otil_exp.rank_unet import compiled_call
from otil_exp.run.execution import execute
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from tiny_sdxl import tiny_pipeline, tiny_unet, words


def spec(composed: Compose, folder: Path, *overrides: str) -> Cell:
    few = ("preset=reference", "device=cpu", "num_inference_steps=2", "warmup_steps=0", "prompts.limit=1")
    cell = prepare(composed(*few, "height=64", "width=64", "metrics=none", *overrides))
    return replace(cell, folder=RunFolder(folder))


def test_schedulers_and_weights_of_one_run_do_not_reach_the_next(composed: Compose, tmp_path: Path) -> None:
    kinds = ("ddim", "euler", "ddim", "dpmpp")
    together = [spec(composed, tmp_path / "t" / f"{i}", f"scheduler={kind}") for i, kind in enumerate(kinds)]
    execute(together, hosted=False)
    for kind in ("euler", "dpmpp"):
        execute([spec(composed, tmp_path / "t" / kind, f"scheduler={kind}")], hosted=False)
    pictures = {run.name: RunFolder(run).image_path(0).read_bytes() for run in (tmp_path / "t").iterdir()}
    assert pictures["0"] == pictures["2"]
    assert pictures["1"] == pictures["euler"]
    assert pictures["3"] == pictures["dpmpp"]
    assert pictures["0"] != pictures["1"]


def test_kept_weights_are_loaded_once_and_shared(composed: Compose) -> None:
    config = prepare(composed("preset=reference", "device=cpu")).effective
    models, device = Models(), torch.device("cpu")
    first = models.load(config.model, config.scheduler, device, keep=True)
    second = models.load(config.model, config.scheduler, device, keep=True)
    last = models.load(config.model, config.scheduler, device)
    assert first.unet is not second.unet
    weights = [next(pipeline.unet.parameters()) for pipeline in (first, second, last)]
    assert len({weight.data_ptr() for weight in weights}) == 1
    assert models.load(config.model, config.scheduler, device).unet.conv_in.weight.data_ptr() != weights[0].data_ptr()


def test_the_graphs_of_a_run_do_not_use_up_those_of_the_next(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile makes so many graphs of a function, eight by default, and then fails."""
    monkeypatch.setattr(compiled_call, "BACKEND", "eager")
    tiny_pipeline(tiny_unet(), tmp_path / "tokenizer").save_pretrained(tmp_path / "model")
    model = (*words(tmp_path / "model"), "engine=compiled")
    runs = [spec(composed, tmp_path / height, *model, f"height={height}") for height in ("64", "128")]
    try:
        # Not by monkeypatch: what it puts back last is deleted for every later test of the process.
        with torch._dynamo.config.patch(recompile_limit=1):
            execute(runs, hosted=False)
    finally:
        torch.compiler.reset()
    assert [run.folder.record["status"] for run in runs] == ["done", "done"]
    assert {run.folder.record["decoder_runs_as"] for run in runs} == {"whole, GroupNorms spread"}
