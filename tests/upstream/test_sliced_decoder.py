"""The VAE over ranks against the VAE in one process."""

import pytest
import torch
from diffusers import AutoencoderKL
from places import place

from otil_exp.upstream.sliced.decoder import sliced_vae
from ranks import run_ranks

pytestmark = pytest.mark.ranks


def vae():
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    channels = {"block_out_channels": (8, 8, 16, 16), "latent_channels": 4, "norm_num_groups": 4}
    return AutoencoderKL(**blocks, **channels).eval().requires_grad_(False)


def latent():
    return 3 * torch.randn(1, 4, 12, 10, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def work(rank):
    whole = vae()
    sliced = sliced_vae(whole, place(rank, split_batch=False))
    pictures = [sliced.decode(latent() * scale).sample for scale in (1, -0.5)]
    return pictures, whole.decode(latent()).sample


@torch.no_grad()
def test_every_rank_gets_the_picture_of_one_process_and_the_whole_vae_stays_whole():
    """Three slices: one has neighbours on both sides. float32, up to the order of sums."""
    expected = [vae().decode(latent() * scale).sample for scale in (1, -0.5)]
    for pictures, untouched in run_ranks(3, work, timeout=120):
        for ours, theirs in zip(pictures, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))
        assert torch.equal(untouched, expected[0])
