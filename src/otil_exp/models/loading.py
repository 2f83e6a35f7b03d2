"""Models by name: the pipeline of diffusers, on one device, before any rank knows of another."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from typing import Any

import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
)
from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.architecture import architecture_of
from otil_exp.models.families import FAMILIES, Family, Pipeline
from otil_exp.models.files import PACKAGE, RANDOM, missing_model, read_index
from otil_exp.models.random_weights import random_pipeline
from otil_exp.shapes import PIPELINE_FOLDER

_log = logging.getLogger(__name__)

_SCHEDULERS: dict[Scheduler, tuple[Any, dict[str, Any]]] = {
    Scheduler.ddim: (DDIMScheduler, {"clip_sample": False, "set_alpha_to_one": False}),
    Scheduler.euler: (EulerDiscreteScheduler, {}),
    Scheduler.dpmpp: (DPMSolverMultistepScheduler, {"algorithm_type": "dpmsolver++"}),
}


def _loaded(model: ModelConfig, device: torch.device, unet_on_host: bool) -> Pipeline:
    """The pipeline of a model on a device, as it was saved; its UNet may stay in host memory."""
    # SDXL's VAE is up-cast by diffusers' own pipeline, which warns of its own way of doing so with every picture.
    warnings.filterwarnings("ignore", message=".*upcast_vae", category=FutureWarning)
    diffusers_logging.set_verbosity_error()
    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()
    dtype, architecture = getattr(torch, model.dtype.name), architecture_of(model)
    if model.source == RANDOM:
        pipeline = random_pipeline(architecture, dtype, device, unet_on_host=unet_on_host)
    else:
        pipeline = _from_files(model, FAMILIES[architecture.pipeline], dtype)
    pipeline.set_progress_bar_config(disable=True)
    for tokenizer in FAMILIES[architecture.pipeline].tokenizers:
        # What is too long is said once, by otil_exp.prompts.cut_short; this one says that indexing errors will follow.
        warned = getattr(pipeline, tokenizer).deprecation_warnings
        warned["sequence-length-is-longer-than-the-specified-maximum"] = True
    for name, part in pipeline.components.items():
        if isinstance(part, torch.nn.Module) and not (unet_on_host and name == "unet"):
            part.to(device)
    return pipeline


def _scheduled(pipeline: Pipeline, scheduler: Scheduler) -> Pipeline:
    """The pipeline with the scheduler asked for."""
    cls, settings = _SCHEDULERS[scheduler]
    pipeline.scheduler = cls.from_config(pipeline.scheduler.config, **settings)
    keep_timesteps_on_host(pipeline.scheduler)
    return pipeline


def keep_timesteps_on_host(scheduler: Any) -> None:
    """Let set_timesteps leave them on the CPU, whatever device a pipeline asks for.

    diffusers' schedulers look each one up in tables that lie on the CPU: one on the GPU makes the host wait for the
    whole step before it can prepare the next.
    """
    set_timesteps = scheduler.set_timesteps

    def on_host(*args: Any, device: Any = None, **options: Any) -> None:
        set_timesteps(*args, device="cpu", **options)

    scheduler.set_timesteps = on_host


class Models:
    """What stays loaded from one run of a process to the next."""

    def __init__(self) -> None:
        self._kept: dict[str, Pipeline] = {}

    def load(
        self,
        model: ModelConfig,
        scheduler: Scheduler,
        device: torch.device,
        *,
        keep: bool = False,
        unet_on_host: bool = False,
    ) -> Pipeline:
        """The pipeline of a model on a device, with the scheduler asked for, whose UNet the caller may change.

        Reads files only: ranks never race for a download. keep: a later run gets the same weights without loading them;
        the UNet is then a copy that shares them. Another model that was kept goes: beside this one it would count as
        the run's memory. unet_on_host: the UNet stays in host memory, for a caller that moves only a part of it. Raises
        FileNotFoundError, with what to run, if files are missing.
        """
        key = f"{model} on {device}, UNet on {'host' if unet_on_host else device}"
        pipeline = self._kept.pop(key, None)
        self._kept.clear()
        pipeline = pipeline or _loaded(model, device, unet_on_host)
        if not keep:
            return _scheduled(pipeline, scheduler)
        self._kept[key] = pipeline
        lent = copy.copy(pipeline)
        lent.unet = _sharing(pipeline.unet)
        return _scheduled(lent, scheduler)


def _sharing(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    """A UNet of its own layers over the same weights."""
    same: dict[int, Any] = {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in unet.parameters()}
    return copy.deepcopy(unet, same | {id(buffer): buffer for buffer in unet.buffers()})


def _from_files(model: ModelConfig, family: Family, dtype: torch.dtype) -> Pipeline:
    """What ships, a local folder or the hub's cache; the UNet too in the variant asked for (upstream loads fp32)."""
    source = PIPELINE_FOLDER if model.source == PACKAGE else os.path.expanduser(model.source)
    try:
        pipeline: Pipeline = family.pipeline.from_pretrained(
            source,
            dtype=dtype,
            variant=model.variant,
            revision=model.revision,
            use_safetensors=True,
            local_files_only=True,
            **family.options,
        )
    except (OSError, ValueError) as error:
        raise missing_model(model, f"{type(error).__name__}: {error}") from error
    _say_what_is_off(model)
    return pipeline


def _say_what_is_off(model: ModelConfig) -> None:
    """A checker would black out pictures that are compared, and only some of the methods' pictures of a prompt."""
    if any(read_index(model).get("safety_checker") or ()):
        _log.warning(
            "%s comes with a safety checker, which is off: look at what is made before it is shown", model.source
        )
