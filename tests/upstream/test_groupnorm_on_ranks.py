"""One GroupNorm layer over three ranks and a few steps, and the whole UNet of an odd world."""

import pytest
import torch
from torch import nn

from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import DistriGroupNorm, PatchParallelismCommManager
from otil_exp.upstream.patches import applied
from places import place
from ranks import run_ranks
from tiny_sdxl import tiny_inputs, tiny_unet
from trajectories import FULL_SYNC, MODES, TENSOR, picture, plain

pytestmark = pytest.mark.ranks

RANKS, GROUPS, STEPS = 3, 2, 4
SCALES = {torch.float32: 1.0, torch.float16: 400.0}
"""Standard deviation of the activations: in fp16, squares overflow."""
INPUTS = {"height": 192, "width": 96}
UNET = {"channels": (24, 48, 48), "groups": 6}
"""Divisible by three."""


def whole_pictures(std=1.0):
    """(1, 4, 12, 5) a step, float64, changing slowly; values of the slices differ."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.linspace(-2, 2, 12, dtype=torch.float64).view(1, 1, 12, 1)
    steps = torch.randn(STEPS, 1, 4, 12, 5, generator=generator, dtype=torch.float64)
    return [std * (steps[0] + rows + 0.2 * step * steps[step]) for step in range(STEPS)]


def norm():
    layer = nn.GroupNorm(GROUPS, 4).requires_grad_(False)
    layer.weight.copy_(torch.tensor([1.0, 2.0, -1.0, 0.5]))
    layer.bias.copy_(torch.tensor([0.0, 1.0, 2.0, -1.0]))
    return layer


@torch.no_grad()
def layer_outputs(ranks, mode, inputs, *patches):
    """This rank's outputs of a layer whose step 0 is warm-up. Its manager holds only this layer's statistics."""
    config = RankConfig(ranks, parallelism="patch", mode=mode, warmup_steps=0, height=64, width=64, guidance=False)
    own = [picture.chunk(RANKS, dim=2)[ranks.slice_index].contiguous() for picture in inputs]
    with applied(*patches):
        layer = DistriGroupNorm(norm().to(inputs[0].dtype), config)
        layer.set_comm_manager(PatchParallelismCommManager(config))
        layer(own[0])
        if layer.comm_manager.numel:
            layer.comm_manager.create_buffer()
        layer.set_counter(0)
        outputs = [layer(part) for part in own]
        layer.comm_manager.clear()
    return outputs


def work(rank):
    ranks = place(rank, split_batch=False)
    exact = ("comm_queue", "exact_groupnorm")
    unet = {"inputs": tiny_inputs(**INPUTS), "unet": tiny_unet(**UNET)}
    return {
        "exact": {
            (mode, dtype): layer_outputs(ranks, str(mode), [p.to(dtype) for p in whole_pictures(std)], *exact)
            for mode in MODES
            for dtype, std in SCALES.items()
        },
        "upstream fp16": layer_outputs(ranks, "full_sync", [p.half() for p in whole_pictures(400.0)]),
        "gn_sync": layer_outputs(ranks, "no_sync", [p.float() for p in whole_pictures()], *exact, "gn_sync"),
        "full_sync": picture(ranks, FULL_SYNC, **unet),
        "tensor": picture(ranks, TENSOR, **unet | {"unet": tiny_unet(**UNET)}),
    }


@pytest.fixture(scope="module")
def made():
    return run_ranks(RANKS, work, timeout=120)


def by_hand(mode, pictures, rank):
    """What a mode means, in float64: means of x and x^2 over the slices that are fresh and those that are stale.

    modules/pp/groupnorm.py:44-72, with the variance of one process (biased).
    """
    affine = [p.view(1, -1, 1, 1).double() for p in (norm().weight, norm().bias)]
    outputs, old = [], None
    for step, whole in enumerate(pictures):
        slices = torch.stack(whole.double().chunk(RANKS, dim=2)).reshape(RANKS, 1, GROUPS, -1)
        now = torch.stack([slices.mean(-1), slices.square().mean(-1)], dim=1)
        own = now[rank]
        if step == 0 or mode in ("full_sync", "sync_gn"):
            mean, square = now.mean(0)
        elif mode == "stale_gn":
            mean, square = (old.sum(0) - old[rank] + own) / RANKS
        elif mode == "corrected_async_gn":
            mean, square = old.mean(0) + own - old[rank]
        else:
            mean, square = own
        variance = square - mean**2
        variance = torch.where(variance < 0, own[1] - own[0] ** 2, variance)
        output = (slices[rank] - mean[..., None]) / (variance[..., None] + norm().eps).sqrt()
        outputs.append(output.view(1, 4, -1, 5) * affine[0] + affine[1])
        old = now
    return outputs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float16, 1e-2)])
def test_exact_statistics_of_every_mode_are_those_worked_out_in_float64(made, mode, dtype, atol):
    inputs = [picture.to(dtype) for picture in whole_pictures(SCALES[dtype])]
    for rank, results in enumerate(made):
        for ours, theirs in zip(results["exact"][mode, dtype], by_hand(mode, inputs, rank), strict=True):
            assert ours.dtype is dtype
            torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=atol)


def test_upstreams_fp16_statistics_lose_the_picture(made):
    flat = norm().bias.half().view(1, -1, 1, 1).expand_as(made[0]["upstream fp16"][0])
    assert torch.equal(made[0]["upstream fp16"][0], flat)  # the fault: normalised to nothing, and no NaN


def test_gn_sync_gives_the_groupnorm_of_the_whole_picture_after_warm_up(made):
    for rank, results in enumerate(made):
        for whole, ours in zip(whole_pictures(), results["gn_sync"], strict=True):
            expected = norm().double()(whole).chunk(RANKS, dim=2)[rank]
            torch.testing.assert_close(ours.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["full_sync", "tensor"])
def test_three_ranks_are_one_process(made, method):
    expected = plain(tiny_unet(**UNET), tiny_inputs(**INPUTS))
    assert max((a - b).abs().max().item() for a, b in zip(made[0][method], expected, strict=True)) <= 2e-6
