"""The layers of a UNet replaced by those of a slice, and the same UNet without the exchange."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import Attention
from diffusers.models.autoencoders.vae import Decoder
from diffusers.models.resnet import ResnetBlock2D
from torch import nn

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.attention import CrossAttention, PictureAttention, SelfAttention
from otil_exp.rank_unet.sliced.conv import FirstConv, SlicedConv
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.layer import SlicedLayer
from otil_exp.rank_unet.sliced.normed_conv import NormedConv
from otil_exp.rank_unet.sliced.resnet import SlicedResnet
from otil_exp.rank_unet.sliced.slices import Slices


def slice_layers(unet: UNet2DConditionModel | Decoder, slices: Slices, gn_sync: GnSync) -> None:
    """Replace in place the layers that look beyond their own rows; with one slice, only merge projections.

    Which ones those are is distrifuser's choice too (models/distri_sdxl_unet_pp.py:22).
    """

    def sliced(name: str, layer: nn.Module) -> nn.Module | None:
        if isinstance(layer, Attention):
            _check(layer)
        if isinstance(layer, Attention) and layer.group_norm is not None:  # of a VAE
            return PictureAttention(layer, slices)
        if isinstance(layer, Attention):
            return (SelfAttention if name == "attn1" else CrossAttention)(layer, slices)
        if slices.count == 1:
            return None
        if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1):
            return FirstConv(layer) if name == "conv_in" else SlicedConv(layer, slices)
        if isinstance(layer, ResnetBlock2D):
            return SlicedResnet(layer, slices, gn_sync)
        return SlicedGroupNorm(layer, slices, gn_sync) if isinstance(layer, nn.GroupNorm) else None

    replace_layers(unet, sliced)
    if slices.count > 1:
        unet.conv_out = NormedConv(unet.conv_norm_out, unet.conv_act, unet.conv_out)
        unet.conv_norm_out = unet.conv_act = nn.Identity()


def replace_layers(module: nn.Module, replacement: Callable[[str, nn.Module], nn.Module | None]) -> None:
    """Replace layers in place by what `replacement` makes of their name and themselves; None leaves a layer."""
    for name, child in list(module.named_children()):
        instead = replacement(name, child)
        if instead is None:
            replace_layers(child, replacement)
        else:
            setattr(module, name, instead)


def shared_copy(module: Any) -> Any:
    """Modules of their own over the same weights and context."""
    twin = copy.copy(module)
    twin._modules = {name: child and shared_copy(child) for name, child in module._modules.items()}
    return twin


def silent_copy(module: nn.Module) -> nn.Module:
    """The same modules, whose sliced layers exchange nothing."""
    twin: nn.Module = shared_copy(module)
    for layer in twin.modules():
        if isinstance(layer, SlicedLayer):
            layer.synchronous = False
    return twin


def _check(attention: Attention) -> None:
    """What transformer blocks have (of SDXL, SD 1.x and SD 2.x), and VAEs, which add what they found themselves."""
    assert all(extra is None for extra in (attention.spatial_norm, attention.norm_q, attention.norm_cross))
    assert attention.rescale_output_factor == 1
    assert attention.residual_connection == (attention.group_norm is not None)
