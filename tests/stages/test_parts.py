"""Segments run one after the other are the whole UNet, bit for bit, and hold their own weights alone."""

from __future__ import annotations

import copy

import pytest
import torch
from diffusers import UNet2DConditionModel

from otil_exp.stages.cut import Cut, balanced_cuts, fold, legal_cuts, named_cuts
from otil_exp.stages.parts import SegmentCall, keep_only
from otil_exp.stages.tape import Unit, tape
from otil_exp.stages.wiring import Segment
from tiny_sdxl import TEXT_WIDTH


def sdxl_like(layers: int = 2, size: int = 16, linear: bool = True) -> UNet2DConditionModel:
    """SDXL's layout, 1, 2 and 3 blocks in a transformer, tiny."""
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=size,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(8, 16, 16),
        layers_per_block=layers,
        norm_num_groups=4,
        cross_attention_dim=2 * TEXT_WIDTH,
        attention_head_dim=4,
        use_linear_projection=linear,
        transformer_layers_per_block=(1, 2, 3),
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=8 * 6 + TEXT_WIDTH,
    )
    return unet.eval().requires_grad_(False)


def sd_like() -> UNet2DConditionModel:
    """Stable Diffusion 1.x and 2.x: four levels, attention on the upper three, told text alone."""
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=16,
        down_block_types=(*("CrossAttnDownBlock2D",) * 3, "DownBlock2D"),
        up_block_types=("UpBlock2D", *("CrossAttnUpBlock2D",) * 3),
        block_out_channels=(8, 8, 16, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=2 * TEXT_WIDTH,
        attention_head_dim=4,
    )
    return unet.eval().requires_grad_(False)


def inputs(size: tuple[int, int] = (16, 16), batch: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {
        "sample": torch.randn(batch, 4, *size, generator=generator),
        "timestep": torch.full((batch,), 501.0),
        "text": torch.randn(batch, 77, 2 * TEXT_WIDTH, generator=generator),
        "text_embeds": torch.randn(batch, TEXT_WIDTH, generator=generator),
        "time_ids": torch.randn(batch, 6, generator=generator),
    }


def whole(unet: UNet2DConditionModel, given: dict[str, torch.Tensor]) -> torch.Tensor:
    added = {"text_embeds": given["text_embeds"], "time_ids": given["time_ids"]}
    return unet(given["sample"], given["timestep"], given["text"], added_cond_kwargs=added).sample


def in_parts(
    unet: UNet2DConditionModel, units: tuple[Unit, ...], segments: tuple[Segment, ...], given: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Run the segments in order, all skips in one dictionary."""
    told = [given[name] for name in ("timestep", "text", "text_embeds", "time_ids")]
    state, skips = (given["sample"],), dict[int, torch.Tensor]()
    for segment in segments:
        call = SegmentCall(unet, units, segment)
        results = call(*told, *state, *(skips[unit] for unit in call.takes))
        left = len(results) - len(call.leaves)
        state = results[:left]
        skips.update(zip(call.leaves, results[left:], strict=True))
    (prediction,) = state
    return prediction


@pytest.mark.parametrize(("layers", "linear", "step"), [(1, True, 1), (2, True, 5), (1, False, 5)])
def test_every_cut_gives_the_whole_unets_output(layers: int, linear: bool, step: int) -> None:
    """All cuts of SDXL's layout with one layer a block, every fifth with two."""
    unet, given = sdxl_like(layers, linear=linear), inputs()
    units = tape(unet.config, 16, 16)
    expected = whole(unet, given)
    cuts = legal_cuts(units)
    assert len(cuts) >= 40
    for cut in cuts[::step]:
        assert torch.equal(in_parts(unet, units, fold(units, [cut]), given), expected), cut.name(units)


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_nested_stages_give_the_whole_unets_output(stages: int) -> None:
    unet, given = sdxl_like(), inputs()
    units = tape(unet.config, 16, 16)
    segments = fold(units, balanced_cuts(units, stages))
    assert torch.equal(in_parts(unet, units, segments, given), whole(unet, given))


def test_sizes_that_do_not_halve_evenly() -> None:
    unet, given = sdxl_like(), inputs((18, 22))
    units = tape(unet.config, 18, 22)
    for cut in legal_cuts(units)[::7]:
        assert torch.equal(in_parts(unet, units, fold(units, [cut]), given), whole(unet, given)), cut.name(units)


@pytest.mark.parametrize("name", ["down1.down/up0.attn1.1", "down1.attn0/up1.res0", "down2.attn0.2/up0.attn1.2"])
def test_a_stage_holds_its_own_weights_alone(name: str) -> None:
    """The stages' weights add up to the UNet's, but for the embeddings of time and text, which each of them has."""
    unet, given = sdxl_like(), inputs()
    units = tape(unet.config, 16, 16)
    segments = fold(units, named_cuts(units, [name]))
    stages, calls = [], []
    for stage in (0, 1):
        own = copy.deepcopy(unet)
        calls.append([SegmentCall(own, units, segment) for segment in segments if segment.stage == stage])
        keep_only(own, calls[-1])
        stages.append(own)
    count = [sum(p.numel() for p in model.parameters()) for model in (unet, *stages)]
    shared = sum(p.numel() for part in (unet.time_embedding, unet.add_embedding) for p in part.parameters())
    assert count[1] + count[2] == count[0] + shared
    assert min(count[1:]) > shared
    # The outer stage computes the same on what it holds.
    told = [given[key] for key in ("timestep", "text", "text_embeds", "time_ids", "sample")]
    expected = SegmentCall(unet, units, segments[0])(*told)
    assert all(torch.equal(a, b) for a, b in zip(calls[0][0](*told), expected, strict=True))


def test_a_stable_diffusion_has_four_levels_and_is_told_less() -> None:
    unet = sd_like()
    given = inputs()
    units = tape(unet.config, 16, 16)
    expected = unet(given["sample"], given["timestep"], given["text"]).sample
    for cut in legal_cuts(units)[::6]:
        state, skips = (given["sample"],), dict[int, torch.Tensor]()
        for segment in fold(units, [cut]):
            call = SegmentCall(unet, units, segment)
            results = call(given["timestep"], given["text"], *state, *(skips.get(one, state[0]) for one in call.takes))
            left = len(results) - len(call.leaves)
            state = results[:left]
            skips.update(zip(call.leaves, results[left:], strict=True))
        assert torch.equal(state[0], expected), cut.name(units)


@pytest.mark.slow
def test_a_segment_compiles_whole() -> None:
    """fullgraph: nothing in it needs Python's help."""
    unet, given = sdxl_like(layers=1), inputs()
    units = tape(unet.config, 16, 16)
    cut = Cut(units.index(next(u for u in units if u.name == "down2.res0")), 0)
    call = SegmentCall(unet, units, Segment(0, cut.first, 0))
    told = [given[key] for key in ("timestep", "text", "text_embeds", "time_ids", "sample")]
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    for a, b in zip(compiled(*told), call(*told), strict=True):
        assert torch.equal(a, b)
