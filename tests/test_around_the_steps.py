"""The measurement of what lies around the steps: each part's figures are there, and compare the same pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionXLPipeline

from benchmarks.around_the_steps import __main__ as script
from benchmarks.around_the_steps.clock import furthest
from benchmarks.around_the_steps.decoder import decoder
from benchmarks.around_the_steps.launching import launched
from benchmarks.around_the_steps.text import text
from otil_exp.rank_unet.inputs import StepInputs
from tiny_sdxl import tiny_inputs, tiny_pipeline, tiny_unet

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")


@pytest.fixture
def pipeline(tmp_path: Path) -> StableDiffusionXLPipeline:
    return tiny_pipeline(tiny_unet(), tmp_path).to(DEVICE)


@torch.no_grad()
def test_text_encoders_are_timed_and_replayed_where_there_is_a_gpu(pipeline: StableDiffusionXLPipeline) -> None:
    found = text(pipeline, DEVICE)
    assert min(found[one]["ms"] for one in ("called", "tokens")) > 0
    assert ("replayed" in found) == ON_GPU
    assert found.get("off_by", 0.0) < 1e-5


@torch.no_grad()
def test_the_decoder_is_left_as_it_was(pipeline: StableDiffusionXLPipeline) -> None:
    weights = {name: weight.clone() for name, weight in pipeline.vae.state_dict().items()}
    found = decoder(pipeline, 64, DEVICE)
    for other in ("channels_last", "GroupNorms spread", "GroupNorms spread, channels_last"):
        assert found[other]["off_by"] < 1e-4 < found[other]["largest"]
    assert ("replayed" in found) == ON_GPU
    for name, weight in pipeline.vae.state_dict().items():
        assert weight.is_contiguous()
        assert torch.equal(weight, weights[name])


def test_one_part_is_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = {part: lambda part=part: {"of": part} for part in script.PARTS}
    monkeypatch.setattr(script, "_measures", lambda: measures)
    assert script.main([str(tmp_path), "--only", "VAE, compiled", "VAE"]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures.items()) == [("VAE", {"of": "VAE"}), ("VAE, compiled", {"of": "VAE, compiled"})]


def test_a_part_that_takes_a_gpu_is_refused_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        script.main([str(tmp_path), "--only", "VAE", "whole UNets"])
    assert "there is no GPU, which these parts need: whole UNets" in capsys.readouterr().err


def test_a_picture_with_a_nan_is_not_near() -> None:
    near, nan = torch.tensor([1.0]), torch.tensor([1.0, math.nan])
    assert math.isnan(furthest([near, nan], [torch.ones(1), torch.ones(2)])["off_by"])
    assert furthest([near, near], [torch.ones(1), torch.ones(1) * 5]) == {"off_by": 4, "largest": 5}


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_every_part_of_a_launch_is_timed() -> None:
    inputs = {name: value.to(DEVICE) for name, value in tiny_inputs().items() if name != "added_cond_kwargs"}
    example = StepInputs(**inputs, timestep=torch.tensor(5.0, device=DEVICE), added_cond_kwargs={})
    found = launched(lambda given: given.sample * 2 + 1, example)
    assert found["nodes"] == {"Kernel": 2}
    assert all(found[f"{part}, host ms"] > 0 for part in ("copy in", "launch", "copy out"))
