"""Pipelines of a published architecture with seeded weights, for timing where the trained ones are not."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTokenizer

from otil_exp.models.architecture import Architecture
from otil_exp.models.families import FAMILIES, Pipeline
from otil_exp.shapes import PIPELINE_FOLDER

SEED = 0


def random_pipeline(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> Pipeline:
    """Weights made on the device; the shapes tokenizer stands in for CLIP's."""
    family = FAMILIES[architecture.pipeline]
    tokenizer = CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
    texts = zip(family.text_encoders.items(), architecture.text, strict=True)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(SEED)
        torch.set_default_dtype(dtype)
        try:
            parts: dict[str, Any] = {
                "unet": UNet2DConditionModel(**architecture.unet),
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


def _text_config(sizes: Any, tokenizer: CLIPTokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        **sizes,
        projection_dim=sizes["hidden_size"],
        max_position_embeddings=77,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
