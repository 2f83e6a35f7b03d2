"""Stable Diffusion from files and with random weights."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch

import tiny_sd
from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.architecture import SDXL_PIPELINE, Architecture
from otil_exp.models.loading import Models
from otil_exp.models.random_weights import random_pipeline

CPU = torch.device("cpu")


def of_files(kind: str, folder: Path) -> ModelConfig:
    tiny_sd.tiny_pipeline(kind).save_pretrained(folder)
    return ModelConfig(name=kind, architecture="files", source=str(folder))


@pytest.mark.parametrize("scheduler", Scheduler)
@pytest.mark.parametrize(("kind", "prediction"), [("sd15", "epsilon"), ("sd21", "v_prediction")])
def test_what_the_weights_predict_survives_the_choice_of_a_scheduler(
    tmp_path: Path, scheduler: Scheduler, kind: str, prediction: str
) -> None:
    config = Models().load(of_files(kind, tmp_path), scheduler, CPU).scheduler.config
    assert config.prediction_type == prediction
    assert (config.beta_start, config.beta_schedule) == (0.00085, "scaled_linear")


def test_a_safety_checker_is_off_and_that_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = of_files("sd15", tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    with caplog.at_level(logging.WARNING):
        pipeline = Models().load(model, Scheduler.ddim, CPU)
    assert pipeline.safety_checker is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} comes with a safety checker, which is off: look at what is made before it is shown"
    ]


def test_of_a_model_without_a_checker_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Models().load(of_files("sd21", tmp_path), Scheduler.ddim, CPU)
    assert not caplog.records


def tiny(pipeline: str, text_encoders: int) -> Architecture:
    """Settings as small as the tiny pipeline's."""
    whole = tiny_sd.tiny_pipeline("sd21")
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    noise = {"prediction_type": "v_prediction"}
    unet, vae = dict(whole.unet.config), dict(whole.vae.config)
    return Architecture(pipeline=pipeline, unet=unet, vae=vae, text=(text,) * text_encoders, noise=noise)


def test_random_weights_are_seeded_and_leave_the_callers_random_numbers_alone() -> None:
    architecture = tiny("StableDiffusionPipeline", 1)
    torch.manual_seed(5)
    first = random_pipeline(architecture, torch.bfloat16, CPU)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    again = random_pipeline(architecture, torch.bfloat16, CPU)
    assert first.scheduler.config.prediction_type == "v_prediction"
    assert first.unet.dtype == first.vae.dtype == first.text_encoder.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(first.unet.parameters(), again.unet.parameters(), strict=True))


def test_random_weights_of_sdxl_have_two_text_encoders() -> None:
    pipeline = random_pipeline(tiny(SDXL_PIPELINE, 2), torch.float32, CPU)
    assert (type(pipeline.text_encoder).__name__, type(pipeline.text_encoder_2).__name__) == (
        "CLIPTextModel",
        "CLIPTextModelWithProjection",
    )
