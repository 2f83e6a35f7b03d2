"""Models by name: the pipeline of diffusers, on one device, before any rank knows of another."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from diffusers.utils import logging as diffusers_logging
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer
from transformers.utils import logging as transformers_logging

from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.model_files import missing_model
from otil_exp.shapes import PIPELINE_FOLDER

RANDOM_SEED = 0
"""Seed of the weights of model=sdxl_random."""

_SCHEDULERS: dict[Scheduler, tuple[Any, dict[str, Any]]] = {
    Scheduler.ddim: (DDIMScheduler, {"clip_sample": False, "set_alpha_to_one": False}),
    Scheduler.euler: (EulerDiscreteScheduler, {}),
    Scheduler.dpmpp: (DPMSolverMultistepScheduler, {"algorithm_type": "dpmsolver++"}),
}


def load_pipeline(model: ModelConfig, scheduler: Scheduler, device: torch.device) -> StableDiffusionXLPipeline:
    """The single-process pipeline of a model on a device, with the scheduler asked for.

    Reads files only: ranks never race for a download. Raises FileNotFoundError, with what to run, if they are missing.
    """
    return _scheduled(_loaded(model, device), scheduler)


def _loaded(model: ModelConfig, device: torch.device) -> StableDiffusionXLPipeline:
    """The pipeline of a model on a device, as it was saved."""
    # SDXL's VAE is up-cast by diffusers' own pipeline, which warns of its own way of doing so with every picture.
    warnings.filterwarnings("ignore", message=".*upcast_vae", category=FutureWarning)
    diffusers_logging.set_verbosity_error()
    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()
    dtype = getattr(torch, model.dtype.name)
    if model.source == "random":
        pipeline = _random_sdxl(dtype, device)
    elif model.source == "package":
        pipeline = StableDiffusionXLPipeline.from_pretrained(PIPELINE_FOLDER, dtype=dtype, add_watermarker=False)
    else:
        pipeline = _from_files(model, dtype)
    pipeline.set_progress_bar_config(disable=True)
    for tokenizer in (pipeline.tokenizer, pipeline.tokenizer_2):
        # What is too long is said once, by otil_exp.prompts.cut_short; this one says that indexing errors will follow.
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return pipeline.to(device)


def _scheduled(pipeline: StableDiffusionXLPipeline, scheduler: Scheduler) -> StableDiffusionXLPipeline:
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
        self._kept: dict[str, StableDiffusionXLPipeline] = {}

    def load(
        self, model: ModelConfig, scheduler: Scheduler, device: torch.device, *, keep: bool = False
    ) -> StableDiffusionXLPipeline:
        """The pipeline of a model on a device, with the scheduler asked for, whose UNet the caller may change.

        keep: a later run gets the same weights without loading them; the UNet is then a copy that shares them.
        """
        key = f"{model} on {device}"
        pipeline = self._kept.pop(key, None) or _loaded(model, device)
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


def _from_files(model: ModelConfig, dtype: torch.dtype) -> StableDiffusionXLPipeline:
    """A local folder, or the hub's cache; the UNet too in the variant asked for (upstream loads the fp32 one)."""
    try:
        return StableDiffusionXLPipeline.from_pretrained(
            os.path.expanduser(model.source),
            dtype=dtype,
            variant=model.variant,
            revision=model.revision,
            use_safetensors=True,
            add_watermarker=False,
            local_files_only=True,
        )
    except (OSError, ValueError) as error:
        raise missing_model(model, f"{type(error).__name__}: {error}") from error


SDXL_UNET: dict[str, Any] = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "layers_per_block": 2,
    "cross_attention_dim": 2048,
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
"""Architecture of stabilityai/stable-diffusion-xl-base-1.0 (its unet/config.json)."""

_SDXL_VAE: dict[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "sample_size": 1024,
    "scaling_factor": 0.13025,
    "force_upcast": True,
}

_SDXL_TEXT: tuple[dict[str, Any], dict[str, Any]] = (
    {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20},
)


def _random_sdxl(dtype: torch.dtype, device: torch.device) -> StableDiffusionXLPipeline:
    """SDXL's architecture with seeded weights, made on the device; the shapes tokenizer stands in for CLIP's."""
    tokenizer = CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
    small, large = (
        CLIPTextConfig(
            **sizes,
            projection_dim=sizes["hidden_size"],
            max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        for sizes in _SDXL_TEXT
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(RANDOM_SEED)
        torch.set_default_dtype(dtype)
        try:
            parts = {
                "unet": UNet2DConditionModel(**SDXL_UNET),
                "vae": AutoencoderKL(**_SDXL_VAE),
                "text_encoder": CLIPTextModel(small),
                "text_encoder_2": CLIPTextModelWithProjection(large),
            }
        finally:
            torch.set_default_dtype(torch.float32)
    for part in parts.values():
        part.eval().requires_grad_(False)
    schedule = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    return StableDiffusionXLPipeline(
        **parts,
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        scheduler=DDIMScheduler(**schedule, steps_offset=1, timestep_spacing="leading"),
        force_zeros_for_empty_prompt=True,
        add_watermarker=False,
    )
