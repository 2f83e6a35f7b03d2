"""Whether a GPU multiplies 8-bit floats, and a model has any: asked while composing, and of GPUs on each rank again."""

from __future__ import annotations

import subprocess

import torch

from otil_exp.choices import DeviceKind, Products
from otil_exp.config import ExperimentConfig
from otil_exp.models.architecture import architecture_of
from otil_exp.rank_unet.products import UNIT

CAPABILITY = (8, 9)
"""Compute capability of the first GPUs that do: Ada (L40S); Hopper (H100) has 9.0."""

Capability = tuple[int, int]


def check_model_widths(config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, if engine.products=fp8 fits no width of this model.

    A model whose levels with transformers alone do not fit is not found out here.
    """
    widths = architecture_of(config.model).channels
    if config.engine.products is Products.fp8 and all(width % UNIT for width in widths):
        raise ValueError(
            f"engine.products=fp8: it multiplies layers whose widths are multiples of {UNIT}, and "
            f"model={config.model.name} has {', '.join(map(str, widths))}: use engine.products=model_dtype"
        )


def check_machine(config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, if engine.products=fp8 is meant for this machine's GPUs and none can.

    Expects a resolved device. Where the driver does not say what the GPUs can, their ranks find out (`check_device`).
    """
    if config.engine.products is not Products.fp8 or config.device.kind is DeviceKind.cpu:
        return
    found = _capabilities()
    if found and max(found) < CAPABILITY:
        raise _too_old("the GPUs here have", max(found))


def check_device(device: torch.device) -> None:
    """Raise ValueError, with what to type, for a GPU that does not; a CPU does."""
    if device.type == "cuda" and (found := torch.cuda.get_device_capability(device)) < CAPABILITY:
        raise _too_old(f"{torch.cuda.get_device_name(device)} has", found)


def _too_old(who: str, found: Capability) -> ValueError:
    return ValueError(
        f"engine.products=fp8: {who} compute capability {found[0]}.{found[1]}, and GPUs multiply fp8 from "
        f"{CAPABILITY[0]}.{CAPABILITY[1]} on (L40S, H100 and newer): use engine.products=model_dtype"
    )


def _capabilities() -> list[Capability]:
    """Of all GPUs of this machine, by its driver's own program: torch would take memory of a GPU to answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return [(int(major), int(minor)) for major, minor in (line.split(".") for line in done.stdout.split())]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
