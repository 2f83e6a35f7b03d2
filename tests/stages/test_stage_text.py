"""Keys and values of the text kept for a picture: the same numbers, and no weights where they are only read."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch import nn

from emulated_graph import emulated_graphs
from otil_exp.choices import GnSync
from otil_exp.models.architecture import SDXL
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import slice_layers
from otil_exp.stages.cut import balanced_cuts, fold, named_cuts
from otil_exp.stages.engine import SegmentEngine
from otil_exp.stages.parts import SegmentCall, keep_only
from otil_exp.stages.tape import tape
from otil_exp.stages.text import KeptOutput, kept_outputs, take_projections
from otil_exp.traffic import TrafficCounter
from stages.test_parts import inputs, sd_like, sdxl_like, whole

MIB = 2**20


def in_stages(unet, units, segments, given) -> torch.Tensor:
    """All segments, one after the other, on what is kept of the text."""
    told = [given["timestep"], torch.full_like(given["text"], torch.nan)]
    told += [given["text_embeds"], given["time_ids"]] if unet.config.addition_embed_type else []
    state, skips = (given["sample"],), dict[int, torch.Tensor]()
    for segment in segments:
        call = SegmentCall(unet, units, segment)
        known = {segment.start - 1: state[0]} | skips
        results = call(*told, *state, *(known[unit] for unit in call.takes))
        left = len(results) - len(call.leaves)
        state = results[:left]
        skips.update(zip(call.leaves, results[left:], strict=True))
    return state[0]


def expected(unet: UNet2DConditionModel, given: dict[str, torch.Tensor]) -> torch.Tensor:
    if unet.config.addition_embed_type:
        return whole(unet, given)
    return unet(given["sample"], given["timestep"], given["text"]).sample


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("make", [sdxl_like, partial(sdxl_like, linear=False), sd_like])
@torch.no_grad()
def test_two_pictures_are_the_whole_unets_bit_for_bit(make, stages: int) -> None:
    """The text that the segments themselves are told is not a number: nothing reads it."""
    unet = make()
    untouched = copy.deepcopy(unet)
    units = tape(unet.config, 16, 16)
    segments = fold(units, balanced_cuts(units, stages))
    projections = take_projections(unet)
    for text in (1.0, -2.0):
        given = inputs()
        given["text"] = given["text"] * text
        for kept, linear in projections.items():
            kept.give(linear(given["text"]))
        assert torch.equal(in_stages(unet, units, segments, given), expected(untouched, given))


@torch.no_grad()
def test_merged_projections_are_kept_too() -> None:
    """The layers that are compiled: one projection of keys and values, equal to rounding."""
    unet, given = sdxl_like(), inputs()
    units = tape(unet.config, 16, 16)
    reference = whole(unet, given)
    slice_layers(unet, Slices(index=0, count=1, group=None, device=torch.device("cpu")), GnSync.off)
    projections = take_projections(unet)
    assert len(projections) == len([name for name, _ in unet.named_modules() if name.endswith("attn2.to_kv")])
    for kept, linear in projections.items():
        kept.give(linear(given["text"]))
    found = in_stages(unet, units, fold(units, balanced_cuts(units, 2)), given)
    assert (found - reference).abs().max() < 1e-5


@torch.no_grad()
def test_every_output_is_read_by_one_stage_in_the_order_of_the_segments() -> None:
    unet = sdxl_like()
    units = tape(unet.config, 16, 16)
    segments = fold(units, named_cuts(units, ["down1.down/up0.attn1.1"]))
    projections = take_projections(unet)
    by_stage = [
        kept_outputs(SegmentCall(unet, units, one) for one in segments if one.stage == stage) for stage in (0, 1)
    ]
    assert sorted(map(id, projections)) == sorted(id(one) for its in by_stage for one in its)
    # Two layers a level down and three up, of 2 and 3 blocks: outside 2 x 2, 2 + 3, 3 x 2; inside 2 x 3, 3, 3 + 1.
    assert [len(its) for its in by_stage] == [2 * (4 + 5 + 6), 2 * (6 + 3 + 4)]
    names = {id(module): name for name, module in unet.named_modules()}
    blocks = [names[id(one)].split(".")[0] for one in by_stage[1]]
    assert blocks == ["down_blocks"] * 12 + ["mid_block"] * 6 + ["up_blocks"] * 8


def compiled(segment: SegmentCall, *inputs: torch.Tensor) -> Any:
    return torch.compile(segment, fullgraph=True, dynamic=False, backend="eager")


@pytest.mark.parametrize("kind", ["called", "compiled", "recorded"])
@torch.no_grad()
def test_another_picture_overwrites_what_engines_read(kind: str) -> None:
    """Nothing is compiled or recorded again for it."""
    unet = sdxl_like(layers=1)
    untouched = copy.deepcopy(unet)
    units = tape(unet.config, 16, 16)
    _, inner, _ = fold(units, named_cuts(units, ["down1.down/up0.attn0"]))
    projections = take_projections(unet)
    call = SegmentCall(unet, units, inner)
    engine = SegmentEngine(
        {1: call},
        compiles=compiled if kind == "compiled" else None,
        record=emulated_graphs(TrafficCounter()) if kind == "recorded" else None,
    )
    plain = SegmentCall(untouched, units, inner)
    given, state = inputs(), torch.randn(2, 16, 4, 4)
    for picture in range(3):
        text = given["text"] * (picture + 1)
        told = [given["timestep"], text, given["text_embeds"], given["time_ids"]]
        for kept in kept_outputs([call]):
            kept.give(projections[kept](text))
        if picture == 0:
            engine.prepare(1, [*told, state])
        with torch.compiler.set_stance("default" if picture == 0 else "fail_on_recompile"):
            found = engine.run(1, [*told, state])
        assert all(torch.equal(a, b) for a, b in zip(found, plain(*told, state), strict=True))
    engine.close()


def test_a_layer_that_was_given_nothing_says_so() -> None:
    with pytest.raises(AssertionError, match="a picture begins with the keys and values"):
        KeptOutput(4)(torch.zeros(1, 2, 3))


def mib(modules: list[nn.Module]) -> float:
    return sum(p.numel() * p.element_size() for module in modules for p in module.parameters()) / MIB


def test_sdxls_inner_rank_holds_less_than_three_fifths() -> None:
    """Weights of both ranks in half precision, counted on the meta device at the default cut.

    By hand: a projection of 2048 to 1280 is 5 MiB; inside are 44 blocks with two each (20 down, 10 in the middle, 14
    up), outside 16 such and 10 of 640. Peaks that were measured on one H200 before (benchmarks/fold.md): 5,352 MiB of
    the whole UNet at batch 2, and 222 of the inner rank beside its weights. What comes on top now are the keys and
    values that are kept, of 77 tokens. The sum is a projection.
    """
    with torch.device("meta"):
        unet = UNet2DConditionModel.from_config(dict(SDXL.unet)).half()
    units = tape(unet.config, 128, 128)
    segments = fold(units, balanced_cuts(units, 2))
    assert mib([unet]) == pytest.approx(4897, abs=0.5)
    ranks, projections = [], []
    for stage in (0, 1):
        own = copy.deepcopy(unet)
        taken = take_projections(own)
        calls = [SegmentCall(own, units, one) for one in segments if one.stage == stage]
        keep_only(own, calls)
        ranks.append(own)
        projections.append([taken[one] for one in kept_outputs(calls)])
    assert [mib(its) for its in projections] == [16 * 10 + 10 * 5, 44 * 10]
    outer, inner = mib([ranks[0], *projections[0], *projections[1]]), mib([ranks[1]])
    assert (outer, inner) == (pytest.approx(1539 + 440, abs=0.5), pytest.approx(3372 - 440, abs=0.5))
    assert inner / mib([unet]) == pytest.approx(0.599, abs=5e-4)
    kept = 44 * 2 * 77 * 1280 * 2 / MIB
    assert (inner + 222 + kept) / 5352 == pytest.approx(0.592, abs=5e-4)
