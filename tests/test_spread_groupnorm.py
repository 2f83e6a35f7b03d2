"""GroupNorms over the whole GPU: against the formula in float64, and in decoders against diffusers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL
from torch import nn

from otil_exp.shapes import PIPELINE_FOLDER
from otil_exp.spread_groupnorm import SpreadGroupNorm, spread_groupnorms
from tiny_sdxl import tiny_pipeline, tiny_unet

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}

SHAPES = [(2, 12, 5, 7), (1, 4, 1, 1), (3, 8, 16, 1), (1, 12, 11), (2, 8, 1)]
"""Of 4 groups; a group of one channel, of one value, and the tokens of attention are among them."""


def norm_of(channels: int, **options: Any) -> nn.GroupNorm:
    torch.manual_seed(1)
    norm = nn.GroupNorm(4, channels, **options).requires_grad_(False)
    if norm.affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return norm


def values(*shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    """float64; channels differ in mean and width."""
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    by_channel = torch.linspace(0.5, 2, shape[1], dtype=torch.float64).view(-1, *[1] * (len(shape) - 2))
    return mean + std * (x * by_channel + by_channel)


def by_hand(x: torch.Tensor, norm: nn.GroupNorm) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps), group by group, in float64."""
    result, width = torch.empty(x.shape, dtype=torch.float64), x.shape[1] // norm.num_groups
    for sample in range(x.shape[0]):
        for first in range(0, x.shape[1], width):
            own = x[sample, first : first + width].double()
            mean = own.sum() / own.numel()
            variance = (own - mean).square().sum() / own.numel()
            result[sample, first : first + width] = (own - mean) / (variance + norm.eps).sqrt()
    if norm.affine:
        weight, bias = (one.double().view(-1, *[1] * (x.ndim - 2)) for one in (norm.weight, norm.bias))
        result = result * weight + bias
    return result


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"eps": 0.5}, {"affine": False}], ids=str)
def test_it_is_the_formula(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    x, norm = values(*shape), norm_of(shape[1], **options)
    for dtype, atol in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        found = SpreadGroupNorm(norm.to(dtype))(x.to(dtype))
        assert found.dtype is dtype
        torch.testing.assert_close(found.double(), by_hand(x.to(dtype), norm), rtol=0, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_stays(layout: str) -> None:
    x = values(2, 12, 5, 7).float().contiguous(memory_format=LAYOUTS[layout])
    norm = norm_of(12)
    found = SpreadGroupNorm(norm)(x)
    assert found.stride() == x.stride()
    torch.testing.assert_close(found.double(), by_hand(x, norm), rtol=0, atol=1e-5)


def test_a_large_mean_does_not_swallow_the_variance() -> None:
    """In float32 the mean of squares less the square of the mean is off by more than a tenth here."""
    x, norm = values(1, 12, 20, 30, mean=3000.0).float(), norm_of(12)
    squares = x.reshape(4, -1).square().mean(1) - x.reshape(4, -1).mean(1).square()
    variance = x.double().reshape(4, -1).var(1, correction=0)
    assert (squares / variance - 1).abs().max() > 0.1
    torch.testing.assert_close(SpreadGroupNorm(norm)(x).double(), by_hand(x, norm), rtol=0, atol=5e-3)


def test_squares_that_float16_cannot_hold() -> None:
    x, norm = values(1, 12, 20, 30, std=1000.0).half(), norm_of(12).half()
    found = SpreadGroupNorm(norm)(x)
    assert found.dtype is torch.float16
    torch.testing.assert_close(found.double(), by_hand(x, norm), rtol=0, atol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gpu_has_enough_values_for_many_thread_blocks(layout: str) -> None:
    x, norm = values(1, 8, 512, 384, mean=3000.0).float(), norm_of(8)
    found = SpreadGroupNorm(norm.cuda())(x.cuda().contiguous(memory_format=LAYOUTS[layout]))
    torch.testing.assert_close(found.double().cpu(), by_hand(x, norm.cpu()), rtol=0, atol=5e-3)


@pytest.fixture(params=["shapes", "sdxl"])
def vae(request: pytest.FixtureRequest, tmp_path: Path) -> AutoencoderKL:
    if request.param == "sdxl":
        return tiny_pipeline(tiny_unet(), tmp_path).vae
    return AutoencoderKL.from_pretrained(PIPELINE_FOLDER / "vae").eval()


@torch.no_grad()
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_decoder_with_them_is_diffusers_own_up_to_rounding(vae: AutoencoderKL, layout: str) -> None:
    latents = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(0))
    expected = vae.decode(latents).sample
    spread = spread_groupnorms(vae)
    norms = [layer for layer in spread.decoder.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) > 10
    assert {type(norm) for norm in norms} == {SpreadGroupNorm}
    assert torch.equal(vae.decode(latents).sample, expected)  # which has its own ones still
    assert {id(weight) for weight in spread.parameters()} == {id(weight) for weight in vae.parameters()}
    spread.decoder.to(memory_format=LAYOUTS[layout])
    found = spread.decode(latents).sample
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
