"""The UNet as a list of units: names, shapes and FLOPs, against diffusers' own modules and torch's counter."""

from __future__ import annotations

import json

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from otil_exp.models.architecture import SDXL as SDXL_ARCHITECTURE
from otil_exp.shapes import PIPELINE_FOLDER
from otil_exp.stages.tape import tape
from tiny_sdxl import tiny_inputs, tiny_unet


def counted_flops(unet: UNet2DConditionModel, inputs: dict[str, object]) -> int:
    """What torch counts in one forward; attention as plain products, which every version counts."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        unet(timestep=torch.tensor(500), **inputs)
    return counter.get_total_flops()


def embedding_flops(unet: UNet2DConditionModel) -> int:
    """Two linear layers for the time and two for the text, which every stage computes: not in the tape."""
    layers = [unet.time_embedding.linear_1, unet.time_embedding.linear_2]
    layers += [unet.add_embedding.linear_1, unet.add_embedding.linear_2]
    return sum(2 * layer.weight.numel() for layer in layers)


@pytest.mark.parametrize(("height", "width"), [(128, 128), (192, 128), (136, 128)])
def test_flops_are_those_that_torch_counts(height: int, width: int) -> None:
    unet = tiny_unet(channels=(16, 32, 32))
    units = tape(unet.config, height // 8, width // 8)
    counted = counted_flops(unet, tiny_inputs(height=height, width=width, batch=1))
    assert sum(unit.flops for unit in units) + embedding_flops(unet) == counted


def test_sdxl_has_the_flops_that_distrifusion_prints() -> None:
    """3,381 GMAC a sample at 1024 squared, which is DistriFusion's 6,763 a step of two."""
    units = tape(SDXL_ARCHITECTURE.unet, 128, 128)
    assert sum(unit.flops for unit in units) / 2e9 == pytest.approx(3381, rel=1e-3)
    assert len(units) == 93


@pytest.mark.parametrize("size", [(32, 32), (34, 40)])
def test_shapes_are_those_of_diffusers_modules(size: tuple[int, int]) -> None:
    config = json.loads((PIPELINE_FOLDER / "unet" / "config.json").read_text())
    unet = UNet2DConditionModel.from_config(config).eval()
    seen: list[tuple[int, ...]] = []
    for block in (*unet.down_blocks, unet.mid_block, *unet.up_blocks):
        for resnet in block.resnets:
            resnet.register_forward_hook(lambda _, __, output: seen.append(tuple(output.shape[1:])))
    added = {"text_embeds": torch.zeros(1, 64), "time_ids": torch.zeros(1, 6)}
    with torch.no_grad():
        unet(torch.zeros(1, 4, *size), 1, torch.zeros(1, 77, 128), added_cond_kwargs=added)
    resnets = [unit for unit in tape(config, *size) if ".res" in unit.name]
    assert [(unit.channels, unit.height, unit.width) for unit in resnets] == seen


def test_every_skip_is_taken_once() -> None:
    units = tape(SDXL_ARCHITECTURE.unet, 128, 128)
    assert sum(unit.pushes for unit in units) == sum(unit.pops for unit in units) == 9


def test_other_unets_are_refused() -> None:
    with pytest.raises(ValueError, match="SimpleCrossAttnDownBlock2D: only UNets of DownBlock2D"):
        tape({**SDXL_ARCHITECTURE.unet, "down_block_types": ("SimpleCrossAttnDownBlock2D",) * 3}, 64, 64)
