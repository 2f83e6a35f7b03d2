"""Seeded weights: the same ones, wherever the UNet is wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from otil_exp.models.architecture import SDXL, Architecture
from otil_exp.models.random_weights import DrawnOn, random_pipeline
from tiny_sdxl import tiny_unet


def tiny() -> Architecture:
    """SDXL's parts with few channels."""
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    vae = SDXL.vae | {"block_out_channels": (8, 8, 16, 16), "norm_num_groups": 4}
    return replace(SDXL, unet=dict(tiny_unet().config), vae=vae, text=(text, text))


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_unet_on_the_host_has_the_values_of_one_on_the_device(device: str, dtype: torch.dtype) -> None:
    """And so have the parts that are drawn after it."""
    there, here = (random_pipeline(tiny(), dtype, torch.device(device), unet_on_host=one) for one in (False, True))
    assert {one.device.type for one in here.unet.parameters()} == {"cpu"}
    assert {one.device.type for one in here.vae.parameters()} == {device}
    for part in ("unet", "vae", "text_encoder", "text_encoder_2"):
        expected, found = (getattr(pipeline, part).state_dict() for pipeline in (there, here))
        assert expected.keys() == found.keys()
        for name, weight in expected.items():
            assert weight.dtype == found[name].dtype
            assert torch.equal(weight.cpu(), found[name].cpu()), name


def test_what_is_drawn_comes_from_the_device() -> None:
    """The fake one has no values to give."""
    with DrawnOn(torch.device("meta")), pytest.raises(NotImplementedError, match="meta"):
        torch.nn.Linear(2, 3)
    with DrawnOn(torch.device("meta")):
        assert torch.nn.LayerNorm(2).weight.tolist() == [1.0, 1.0]
