"""A residual block of a slice."""

from __future__ import annotations

import torch
from diffusers.models.resnet import ResnetBlock2D
from torch import nn

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.conv import SlicedConv
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.normed_conv import NormedConv
from otil_exp.rank_unet.sliced.slices import Slices


class SlicedResnet(nn.Module):
    """diffusers' ResnetBlock2D as the UNets and VAEs of SDXL and Stable Diffusion have it, in two collectives."""

    def __init__(self, resnet: ResnetBlock2D, slices: Slices, gn_sync: GnSync) -> None:
        super().__init__()
        timeless = resnet.time_emb_proj is None
        assert resnet.time_embedding_norm in (("default", "group") if timeless else ("default",))  # the VAE's say group
        assert not resnet.skip_time_act
        assert resnet.upsample is None
        assert resnet.downsample is None
        assert resnet.output_scale_factor == 1
        assert resnet.dropout.p == 0

        def normed(norm: nn.GroupNorm, conv: nn.Conv2d) -> NormedConv:
            return NormedConv(SlicedGroupNorm(norm, slices, gn_sync), resnet.nonlinearity, SlicedConv(conv, slices))

        self.conv1, self.conv2 = normed(resnet.norm1, resnet.conv1), normed(resnet.norm2, resnet.conv2)
        self.nonlinearity, self.time_emb_proj = resnet.nonlinearity, resnet.time_emb_proj
        self.conv_shortcut = resnet.conv_shortcut

    def forward(self, input_tensor: torch.Tensor, temb: torch.Tensor | None) -> torch.Tensor:
        """input_tensor: (n, C, h, w); temb: (n, width), or None in a VAE. Returns (n, C', h, w)."""
        assert (temb is None) == (self.time_emb_proj is None)
        hidden: torch.Tensor = self.conv1(input_tensor)
        if self.time_emb_proj is not None:
            hidden = hidden + self.time_emb_proj(self.nonlinearity(temb))[:, :, None, None]
        shortcut = input_tensor if self.conv_shortcut is None else self.conv_shortcut(input_tensor)
        result: torch.Tensor = shortcut + self.conv2(hidden)
        return result
