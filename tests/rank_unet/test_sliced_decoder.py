"""The VAE over ranks against the VAE in one process."""

import pytest
import torch
from diffusers import AutoencoderKL

from otil_exp.rank_unet.sliced.decoder import sliced_vae
from otil_exp.spread_groupnorm import spread_groupnorms
from otil_exp.traffic import TrafficCounter
from places import place
from ranks import run_ranks
from sliced_layers import exchanging_layers

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
    whole, here = vae(), place(rank, split_batch=False)
    sliced = sliced_vae(whole, here)
    pictures = [sliced.decode(latent() * scale).sample for scale in (1, -0.5)]
    with TrafficCounter().installed() as traffic:
        spread = sliced_vae(spread_groupnorms(whole), here).decode(latent()).sample
    assert torch.equal(spread, pictures[0])  # nothing of GroupNorms but their weights is asked for
    return pictures, whole.decode(latent()).sample, traffic.total.collectives


@pytest.fixture(scope="module")
def made():
    return run_ranks(3, work, timeout=120)


@torch.no_grad()
def test_every_rank_gets_the_picture_of_one_process_and_the_whole_vae_stays_whole(made):
    """Three slices: one has neighbours on both sides. float32, up to the order of sums."""
    expected = [vae().decode(latent() * scale).sample for scale in (1, -0.5)]
    for pictures, untouched, _ in made:
        for ours, theirs in zip(pictures, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))
        assert torch.equal(untouched, expected[0])


def test_a_groupnorm_and_the_convolution_after_it_take_one_collective(made):
    """Of the other layers each takes one, and so does the picture."""
    layers, shared, _ = exchanging_layers(vae().decoder)
    assert [collectives for *_, collectives in made] == [layers - shared + 1] * 3
