"""What a model is made of, as data: what rules on sizes and layers are derived from, without loading anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from otil_exp.config import ModelConfig
from otil_exp.shapes import PIPELINE_FOLDER


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The networks of a pipeline."""

    unet: Mapping[str, Any]
    """Settings of diffusers' UNet2DConditionModel; what it leaves out is as diffusers has it."""

    vae_factor: int = 8
    """Pixels per latent pixel, in each direction."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the UNet's levels, from full resolution down."""
        return tuple(self.unet["block_out_channels"])

    @property
    def norm_groups(self) -> int:
        """Groups of a GroupNorm."""
        return int(self.unet.get("norm_num_groups", 32))

    @property
    def lowest(self) -> int:
        """Latent pixels, in each direction, that one pixel of the lowest level covers: each level halves."""
        return 2 ** (len(self.channels) - 1)

    @property
    def slice_unit(self) -> int:
        """Pixel rows that a slice is a multiple of, so that it has whole rows on every level.

        Upstream computes silently wrong pictures otherwise (720 x 1280 on 2 slices of SDXL among them).
        """
        return self.vae_factor * self.lowest


SDXL = Architecture(
    unet={
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
)
"""stabilityai/stable-diffusion-xl-base-1.0 (its unet/config.json)."""


def _shapes() -> Architecture:
    """The pipeline that ships, as its own files say."""
    return Architecture(unet=json.loads((PIPELINE_FOLDER / "unet" / "config.json").read_text(encoding="utf-8")))


ARCHITECTURES: dict[str, Callable[[], Architecture]] = {"sdxl": lambda: SDXL, "shapes": _shapes}
"""By the name that model.architecture gives."""


def architecture_of(model: ModelConfig) -> Architecture:
    """The architecture of a model. Raises ValueError, with those there are, for a name that is none."""
    if model.architecture not in ARCHITECTURES:
        raise ValueError(f"model.architecture={model.architecture}: use one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[model.architecture]()
