"""Models by name, from files only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from otil_exp.choices import Dtype, Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.loading import Models


def test_a_model_that_is_not_there_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    model = ModelConfig(name="sdxl", source=f"{tmp_path}/nowhere", variant="fp16", dtype=Dtype.float32)
    with pytest.raises(FileNotFoundError, match=r"otil-exp-fetch .*--variant fp16"):
        Models().load(model, Scheduler.ddim, torch.device("cpu"))


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (Scheduler.ddim, "DDIMScheduler"),
        (Scheduler.euler, "EulerDiscreteScheduler"),
        (Scheduler.dpmpp, "DPMSolverMultistepScheduler"),
    ],
)
def test_the_scheduler_is_the_one_asked_for(scheduler: Scheduler, name: str) -> None:
    pipeline = Models().load(
        ModelConfig(name="shapes", architecture="shapes", source="package"), scheduler, torch.device("cpu")
    )
    assert type(pipeline.scheduler).__name__ == name
    assert pipeline.scheduler.config.beta_schedule == "scaled_linear"


@pytest.mark.parametrize("scheduler", Scheduler)
def test_timesteps_stay_where_the_tables_are_that_they_are_looked_up_in(scheduler: Scheduler) -> None:
    """On a GPU each look-up would make the host wait for the step before; "meta" stands for any other device."""
    pipeline = Models().load(
        ModelConfig(name="shapes", architecture="shapes", source="package"), scheduler, torch.device("cpu")
    )
    pipeline.scheduler.set_timesteps(4, device=torch.device("meta"))
    assert pipeline.scheduler.timesteps.device.type == "cpu"
    assert len(pipeline.scheduler.timesteps) == 4


def test_the_unet_is_loaded_in_the_variant_asked_for(tmp_path: Path) -> None:
    """A folder that holds fp16 files only, as SDXL's does: upstream's own loading wants the fp32 ones."""
    whole = Models().load(
        ModelConfig(name="shapes", architecture="shapes", source="package"), Scheduler.ddim, torch.device("cpu")
    )
    whole.to(torch.float16).save_pretrained(tmp_path, variant="fp16")
    model = ModelConfig(name="mine", architecture="shapes", source=str(tmp_path), variant="fp16", dtype=Dtype.float16)
    assert Models().load(model, Scheduler.ddim, torch.device("cpu")).unet.dtype == torch.float16
    with pytest.raises(FileNotFoundError):
        Models().load(replace(model, variant=None), Scheduler.ddim, torch.device("cpu"))
