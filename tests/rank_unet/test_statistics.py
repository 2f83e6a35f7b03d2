"""Oracles: torch.nn.GroupNorm over the whole picture, and upstream's formulas written out in float64."""

import pytest
import torch
from torch import nn

from otil_exp.rank_unet.statistics import combined, corrected, normalised, slice_statistics

GROUPS = 4


def pictures(mean=0.0, std=1.0, steps=1, seed=0):
    """(2, 8, 24, 6) in float64, a few steps of a slowly changing one; rows differ in mean, as in a real picture."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.linspace(-1, 1, 24, dtype=torch.float64).view(1, 1, 24, 1)
    picture = torch.randn(2, 8, 24, 6, generator=generator, dtype=torch.float64) + rows
    changes = [0.1 * torch.randn(picture.shape, generator=generator, dtype=torch.float64) for _ in range(steps - 1)]
    return [mean + std * (picture + sum(changes[:step], torch.zeros_like(picture))) for step in range(steps)]


def norm_of(dtype=torch.float32):
    torch.manual_seed(1)
    norm = nn.GroupNorm(GROUPS, 8).requires_grad_(False)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm.to(dtype)


def gathered(picture, slices):
    return torch.stack([slice_statistics(part, GROUPS) for part in picture.chunk(slices, dim=2)])


@pytest.mark.parametrize("slices", [2, 3, 4])
def test_slices_combine_to_the_groupnorm_of_the_whole_picture(slices):
    (picture,) = pictures()
    norm = norm_of(torch.float64)
    statistics = combined(gathered(picture, slices))
    torch.testing.assert_close(normalised(picture, *statistics, norm), norm(picture), rtol=0, atol=1e-13)


def test_a_norm_without_affine_has_no_weight_to_apply():
    (picture,) = pictures()
    norm = nn.GroupNorm(GROUPS, 8, affine=False)
    torch.testing.assert_close(normalised(picture, *combined(gathered(picture, 2)), norm), norm(picture))


def test_fp16_values_of_256_and_more_do_not_overflow():
    (picture,) = pictures(std=400.0)
    picture = picture.half()  # squares are beyond 65504: upstream returns zeros here
    expected = norm_of(torch.float64)(picture.double())
    output = normalised(picture, *combined(gathered(picture, 2)), norm_of(torch.float16))
    assert output.dtype is torch.float16
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-2)


def test_a_large_mean_does_not_swallow_the_variance():
    (picture,) = pictures(mean=1000.0)
    picture = picture.float()
    expected = norm_of(torch.float64)(picture.double())
    output = normalised(picture, *combined(gathered(picture, 2)), norm_of())
    # fp32 costs torch's own GroupNorm 6e-5 here; upstream's formula is 0.4 off
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("mean", "dtype", "atol"), [(0.0, torch.float64, 1e-13), (1000.0, torch.float32, 1e-3)])
def test_correction_is_upstreams_formula_without_its_cancellation(mean, dtype, atol):
    before, now = pictures(mean=mean, steps=2)
    stale, own = gathered(before.to(dtype), 3), slice_statistics(now.to(dtype).chunk(3, dim=2)[1], GROUPS)

    def moments(picture):
        grouped = picture.to(dtype).double().reshape(2, GROUPS, -1)
        return torch.stack([grouped.mean(-1), grouped.square().mean(-1)])

    # modules/pp/groupnorm.py:51-60, in float64: the stale whole plus what changed in the own slice
    change = moments(now.chunk(3, dim=2)[1]) - moments(before.chunk(3, dim=2)[1])
    expected_mean, expected_square = moments(before) + change
    mean_, variance = corrected(stale, own, stale[1])
    torch.testing.assert_close(mean_.double(), expected_mean, rtol=0, atol=max(atol, 1e-12 * mean))
    torch.testing.assert_close(variance.double(), expected_square - expected_mean**2, rtol=0, atol=atol)


def test_a_negative_corrected_variance_gives_way_to_the_own_slices():
    # worked by hand: slices had means +-1 and variance 0, so the whole had variance 1; the own slice moves by 3
    stale = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).reshape(2, 2, 1, 1)
    own = torch.tensor([-2.0, 0.25]).reshape(2, 1, 1)  # 1 + (0.25 + 4) - (0 + 1) - 9 = -4.75
    mean, variance = corrected(stale, own, stale[0])
    assert (mean.item(), variance.item()) == (-3.0, 0.25)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_statistics_on_the_gpu_equal_those_of_the_cpu():
    (picture,) = pictures(std=100.0)
    for dtype in (torch.float16, torch.float32):
        on_gpu = slice_statistics(picture.to(dtype).cuda(), GROUPS)
        torch.testing.assert_close(on_gpu.cpu(), slice_statistics(picture.to(dtype), GROUPS), rtol=1e-5, atol=1e-4)
