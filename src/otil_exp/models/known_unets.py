"""Which UNets run here: those that are told a text alone, of layers that every method knows how to share out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otil_exp.models.files import SD_PIPELINE, SDXL_PIPELINE

_MORE_INPUTS = ("class_embed_type", "num_class_embeds", "time_cond_proj_dim", "dual_cross_attention")
"""Settings of a UNet that ask for what neither class of pipelines gives it here."""

_KNOWN: Mapping[str, tuple[Any, ...]] = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "mid_block_type": ("UNetMidBlock2DCrossAttn", "UNetMidBlock2D", None),
    "resnet_time_scale_shift": ("default",),
    "mid_block_scale_factor": (1,),
    "dropout": (0,),
    "conv_in_kernel": (3,),
    "conv_out_kernel": (3,),
    "downsample_padding": (1,),
    "only_cross_attention": (False,),
    "attention_type": ("default",),
    "center_input_sample": (False,),
    "time_embedding_act_fn": (None,),
    "encoder_hid_dim": (None,),
    "encoder_hid_dim_type": (None,),
}
"""Settings of a UNet with the values whose layers every method shares out among ranks: diffusers' defaults, for those
that are left out. With others some method fails on its ranks; those that are not here make no difference to any."""

_TOLD: Mapping[str, str | None] = {SDXL_PIPELINE: "text_time", SD_PIPELINE: None}
"""addition_embed_type: what a UNet is told besides the text, by its pipeline."""


def check_unet(source: str, pipeline: str, unet: Mapping[str, Any], *, latents: int) -> None:
    """Raise ValueError for a UNet that would fail, or some method of it, only once ranks are there.

    source: as the user gave it; pipeline: its class; unet: settings; latents: channels that the VAE has.
    """
    _check_inputs(source, unet, latents)
    _check_layers(source, unet, {**_KNOWN, "addition_embed_type": (_TOLD[pipeline],)})


def _check_inputs(source: str, unet: Mapping[str, Any], latents: int) -> None:
    """A UNet that needs more than a latent, a timestep and a text, or predicts more than noise, fails in its first
    step."""
    odd = [f"{name}={unet[name]}" for name in _MORE_INPUTS if unet.get(name) not in (None, False)]
    channels = {name: unet.get(name, 4) for name in ("in_channels", "out_channels")}
    odd += [f"{name}={count} for latents of {latents}" for name, count in channels.items() if count != latents]
    if odd:
        raise ValueError(
            f"model.source={source}: its UNet has {', '.join(odd)}, and what runs here makes pictures of a text "
            "alone (no inpainting, no class, no guidance as an input, no learned variance): use such as model=sdxl or "
            "model=sd15"
        )


def _check_layers(source: str, unet: Mapping[str, Any], known: Mapping[str, Sequence[Any]]) -> None:
    """Layers that some method cannot share out among ranks."""
    settings = {"addition_embed_type": None, **unet}
    odd = [
        name
        for name, values in known.items()
        if name in settings and any(one not in values for one in _each(settings[name]))
    ]
    if odd:
        has = ", ".join(f"{name}={settings[name]}" for name in odd)
        possible = ", ".join(f"{name}={' or '.join(map(str, known[name]))}" for name in odd)
        raise ValueError(
            f"model.source={source}: its UNet has {has}, and the methods here share out the layers of SDXL and of "
            f"Stable Diffusion 1 and 2 ({possible}): use such as model=sdxl or model=sd15"
        )


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)
