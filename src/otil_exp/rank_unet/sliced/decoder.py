"""The decoder of a VAE over all ranks: each decodes a slice of the latent, and all get the picture."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL
from torch import nn
from torch.nn import functional as F

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import shared_copy, slice_layers
from otil_exp.topology import RankContext


def sliced_vae(vae: AutoencoderKL, ranks: RankContext) -> AutoencoderKL:
    """The same VAE over the same weights, whose decoder works on a slice a rank; every rank must call it together.

    Equal to the VAE in one process up to the order of sums: halo rows, GroupNorm and the keys and values of its
    attention are exchanged, in the VAE's dtype. The latent's rows must divide by the ranks.
    """
    slices = Slices(index=ranks.rank, count=ranks.topology.world_size, group=None, device=ranks.device)
    sliced: AutoencoderKL = shared_copy(vae)
    slice_layers(sliced.decoder, slices, GnSync.off)
    sliced.decoder = SlicedDecoder(sliced.decoder, slices)
    return sliced


class SlicedDecoder(nn.Module):
    """Cuts the latent, decodes the own rows, gathers the picture."""

    def __init__(self, decoder: nn.Module, slices: Slices) -> None:
        super().__init__()
        self.decoder, self._slices = decoder, slices

    def forward(self, latent: torch.Tensor, latent_embeds: torch.Tensor | None = None) -> torch.Tensor:
        """latent: (b, 4, h, w), the same on all ranks. Returns the picture (b, 3, 8 h, 8 w)."""
        rows = latent.shape[2] // self._slices.count
        assert rows * self._slices.count == latent.shape[2], "validation leaves latents that divide"
        own = F.pad(latent, (0, 0, 1, 1)).narrow(2, self._slices.index * rows, rows + 2)
        pictures = self._slices.gather(self.decoder(own, latent_embeds))  # (N, b, 3, 8 rows, 8 w)
        return torch.cat(list(pictures), dim=2)
