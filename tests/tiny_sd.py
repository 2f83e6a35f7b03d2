"""Tiny Stable Diffusions with random weights, made in code: as 1.5 and as 2.1 are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from otil_exp.shapes import PIPELINE_FOLDER

TEXT_WIDTH = 32

FOUR_LEVELS, TWO_LEVELS = (16, 32, 32, 32), (16, 32)
"""Channels, one a level. Two levels have every kind of layer, and take half as long to compile."""

KINDS: dict[str, dict[str, Any]] = {
    "sd15": {"attention_head_dim": 4},  # 4 heads on every level, whose width differs; 1 x 1 convolutions as projections
    "sd21": {"attention_head_dim": (2, 4, 4, 4), "use_linear_projection": True, "upcast_attention": True},
}
"""What the UNets of the two differ in."""

NOISE: dict[str, dict[str, Any]] = {"sd15": {}, "sd21": {"prediction_type": "v_prediction"}}


def tiny_unet(kind: str, channels: tuple[int, ...] = FOUR_LEVELS) -> UNet2DConditionModel:
    """A UNet with attention on all levels but the lowest."""
    settings, above = dict(KINDS[kind]), len(channels) - 1
    if isinstance(settings["attention_head_dim"], tuple):
        settings["attention_head_dim"] = settings["attention_head_dim"][: len(channels)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        unet = UNet2DConditionModel(
            sample_size=8,
            down_block_types=(*("CrossAttnDownBlock2D",) * above, "DownBlock2D"),
            up_block_types=("UpBlock2D", *("CrossAttnUpBlock2D",) * above),
            block_out_channels=channels,
            layers_per_block=1,
            norm_num_groups=4,
            cross_attention_dim=TEXT_WIDTH,
            **settings,
        )
    return unet.eval().requires_grad_(False)


def tiny_inputs(*, height: int = 128, width: int = 128) -> dict[str, Any]:
    """Inputs of a call with guidance, all but the timestep: one latent for the whole batch, a text for each half."""
    generator = torch.Generator().manual_seed(7)
    latent = torch.randn(1, 4, height // 8, width // 8, generator=generator)
    text = torch.randn(2, 77, TEXT_WIDTH, generator=generator)
    return {"sample": latent.repeat(2, 1, 1, 1), "encoder_hidden_states": text}


def tiny_pipeline(kind: str, channels: tuple[int, ...] = FOUR_LEVELS) -> StableDiffusionPipeline:
    """A whole pipeline; the tokenizer is that of the shapes model."""
    tokenizer = CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        vae = AutoencoderKL(
            block_out_channels=(8, 8, 16, 16),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            latent_channels=4,
            norm_num_groups=4,
        )
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(tokenizer),
                hidden_size=TEXT_WIDTH,
                intermediate_size=2 * TEXT_WIDTH,
                num_hidden_layers=2,
                num_attention_heads=4,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    return StableDiffusionPipeline(
        vae=vae.eval(),
        text_encoder=text.eval(),
        tokenizer=tokenizer,
        unet=tiny_unet(kind, channels),
        scheduler=DDIMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            clip_sample=False,
            set_alpha_to_one=False,
            steps_offset=1,
            **NOISE[kind],
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def words(kind: str, folder: Path) -> tuple[str, ...]:
    """What a user types for a tiny pipeline that was saved to folder / kind: rules are read from its own files."""
    files = (f"model.source={folder / kind}", "model.architecture=files", "model.variant=null")
    return (f"model={kind}", *files, "model.dtype=float32")
