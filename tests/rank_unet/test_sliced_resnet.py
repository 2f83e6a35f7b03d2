"""Residual blocks of slices against diffusers' of the whole picture."""

import pytest
import torch
from diffusers.models.resnet import ResnetBlock2D

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.resnet import SlicedResnet
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import silent_copy
from places import place
from ranks import run_ranks

pytestmark = pytest.mark.ranks

RANKS = 3
"""One slice has neighbours on both sides."""
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
BLOCKS = {
    "of a UNet": {"in_channels": 8, "out_channels": 12, "temb_channels": 6},
    "of a VAE": {"in_channels": 8, "temb_channels": None, "time_embedding_norm": "group"},
}


def block(name):
    torch.manual_seed(0)
    return ResnetBlock2D(groups=4, eps=1e-6, **BLOCKS[name]).eval().double().requires_grad_(False)


def picture(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 1 + 2 * torch.randn(2, 8, 4 * RANKS, 6, generator=generator, dtype=torch.float64)


def time(name):
    width = BLOCKS[name]["temb_channels"]
    return width and torch.linspace(-1, 1, 2 * width, dtype=torch.float64).view(2, width)


@torch.no_grad()
def work(rank):
    ranks = place(rank, split_batch=False)
    slices = Slices(index=rank, count=RANKS, group=ranks.batch_group, device=ranks.device)
    found = {}
    for name in BLOCKS:
        for gn_sync in GnSync:
            resnet = SlicedResnet(block(name), slices, gn_sync)
            synchronous = resnet(picture().chunk(RANKS, dim=2)[rank], time(name))
            if gn_sync is GnSync.exact:
                silent = silent_copy(resnet)(picture().chunk(RANKS, dim=2)[rank], time(name))
                found[name, "silent"] = silent
            found[name, gn_sync] = synchronous
    for dtype in DTYPES:
        norm = SlicedGroupNorm(block("of a UNet").norm1.to(dtype), slices, GnSync.off)
        own = picture().chunk(RANKS, dim=2)[rank].to(dtype).contiguous(memory_format=torch.channels_last)
        found[dtype] = (norm(own), *norm.with_halos(own))
    return found


@pytest.fixture(scope="module")
def made():
    return run_ranks(RANKS, work)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("gn_sync", GnSync)
@torch.no_grad()
def test_a_synchronous_step_is_the_block_of_the_whole_picture(made, name, gn_sync):
    """In float64."""
    whole = torch.cat([rank[name, gn_sync] for rank in made], dim=2)
    torch.testing.assert_close(whole, block(name)(picture(), time(name)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_silent_step_finds_what_the_synchronous_one_left(made, name):
    """With exact GroupNorm and the same input it is the same."""
    for rank in made:
        assert torch.equal(rank[name, "silent"], rank[name, GnSync.exact])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_normalised_where_they_arrive_are_to_the_bit_those_of_the_slice_they_come_from(made, dtype):
    """And so is a slice itself, whether its halo rows come along or not."""
    for index, rank in enumerate(made):
        alone, own, (above, below) = rank[dtype]
        assert torch.equal(own, alone)
        if index > 0:
            assert torch.equal(above, made[index - 1][dtype][0][:, :, -1:])
        if index < RANKS - 1:
            assert torch.equal(below, made[index + 1][dtype][0][:, :, :1])
