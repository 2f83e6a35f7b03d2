"""Pipelines of a published architecture with seeded weights, for timing where the trained ones are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CLIPTextConfig, CLIPTokenizer

from otil_exp.models.architecture import Architecture
from otil_exp.models.families import FAMILIES, Pipeline
from otil_exp.shapes import PIPELINE_FOLDER

SEED = 0


class DrawnOn(TorchDispatchMode):
    """Weights that are made in host memory get the values that they would have got on a device, one by one."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        weight, *rest = args
        assert func._schema.is_mutable, f"{func}: layers draw into the weights that they have"
        return weight.copy_(func(torch.empty_like(weight, device=self._device), *rest, **(kwargs or {})))


def random_pipeline(
    architecture: Architecture, dtype: torch.dtype, device: torch.device, *, unet_on_host: bool = False
) -> Pipeline:
    """Weights drawn on the device; the shapes tokenizer stands in for CLIP's.

    unet_on_host: the UNet, of the same values, is in host memory; the device has held each weight of it for a moment.
    """
    family = FAMILIES[architecture.pipeline]
    tokenizer = CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
    texts = zip(family.text_encoders.items(), architecture.text, strict=True)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(SEED)
        torch.set_default_dtype(dtype)
        try:
            parts: dict[str, Any] = {
                "unet": _unet(architecture, device, unet_on_host),
                "vae": AutoencoderKL(**architecture.vae),
                **{part: encoder(_text_config(sizes, tokenizer)) for (part, encoder), sizes in texts},
            }
        finally:
            torch.set_default_dtype(torch.float32)
    for part in parts.values():
        part.eval().requires_grad_(False)
    pipeline: Pipeline = family.pipeline(
        **parts,
        **dict.fromkeys(family.tokenizers, tokenizer),
        scheduler=DDIMScheduler(**architecture.noise),
        **family.options,
    )
    return pipeline


def _unet(architecture: Architecture, device: torch.device, on_host: bool) -> UNet2DConditionModel:
    if not on_host:
        return UNet2DConditionModel(**architecture.unet)
    with torch.device("cpu"), DrawnOn(device):
        return UNet2DConditionModel(**architecture.unet)


def _text_config(sizes: Any, tokenizer: CLIPTokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        **sizes,
        projection_dim=sizes["hidden_size"],
        max_position_embeddings=77,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
