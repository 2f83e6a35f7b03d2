"""fp8 is refused where no GPU multiplies it: by the driver's word while composing, by torch's on a rank."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from composing import Typed
from otil_exp.choices import DeviceKind
from otil_exp.config import ExperimentConfig
from otil_exp.fp8_gpus import check_device, check_machine, check_model_widths
from otil_exp.models.architecture import ARCHITECTURES, Architecture


def driver_says(monkeypatch: pytest.MonkeyPatch, words: str | None) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if words is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, stdout=words)

    monkeypatch.setattr(subprocess, "run", run)


def on(config: ExperimentConfig, kind: DeviceKind) -> ExperimentConfig:
    return replace(config, device=replace(config.device, kind=kind))


@pytest.mark.parametrize("kind", [DeviceKind.cuda, DeviceKind.shared_gpu])
def test_gpus_that_are_too_old_are_refused_while_composing(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, kind: DeviceKind
) -> None:
    config = on(typed("engine.products=fp8"), kind)
    driver_says(monkeypatch, "7.5\n8.0\n")
    with pytest.raises(ValueError, match=r"the GPUs here have compute capability 8\.0.*engine\.products=model_dtype"):
        check_machine(config)
    check_machine(on(config, DeviceKind.cpu))
    check_machine(on(typed(), kind))
    for words in ("8.0\n9.0\n", "8.9\n", "12.0\n", "N/A\n", None):
        driver_says(monkeypatch, words)
        check_machine(config)


def test_a_rank_is_refused_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ValueError, match=r"NVIDIA A100 has compute capability 8\.0"):
        check_device(torch.device("cuda", 1))
    check_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    check_device(torch.device("cuda", 1))


@pytest.mark.parametrize(("channels", "refused"), [((8, 24), True), ((8, 32), False), ((320, 640), False)])
def test_a_model_without_a_layer_for_it_is_refused_while_composing(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, channels: tuple[int, ...], refused: bool
) -> None:
    narrow = Architecture(unet={"block_out_channels": channels}, vae={"block_out_channels": (8,)})
    monkeypatch.setitem(ARCHITECTURES, "narrow", lambda _: narrow)
    words = ("model.architecture=narrow", "model.name=narrow")
    check_model_widths(typed(*words))
    with pytest.raises(ValueError, match="model=narrow has 8, 24: use engine") if refused else nullcontext():
        check_model_widths(typed("engine.products=fp8", *words))
