"""The pipeline of a rank: what it leaves behind when something fails, and that all it sends is counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.models.attention_processor import Attention
from torch import nn

from otil_exp import pipeline as pipeline_module
from otil_exp.choices import Engine
from otil_exp.methods import patch_step
from otil_exp.methods.context_blocks.config import ContextBlocksConfig, ContextConfig
from otil_exp.methods.rooms import step_of
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.pipeline import RankPipeline
from otil_exp.spread_groupnorm import SpreadGroupNorm
from otil_exp.topology import RankContext
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import DistriGroupNorm, PatchParallelismCommManager, pp_attn
from places import among_fake_peers, place_without_peers
from tiny_sdxl import tiny_inputs, tiny_pipeline, tiny_unet
from trajectories import TIMESTEPS, WARMUP, cell, layers_in

LATE = layers_in("corrected_async_gn")
PREDICTION = 2 * 4 * 8 * 16 * 4
"""Bytes of a slice of 128 x 128 pixels on two ranks: batch, channels, rows, columns, float32."""


@pytest.fixture
def plain(tmp_path: Path) -> StableDiffusionXLPipeline:
    return tiny_pipeline(tiny_unet(), tmp_path)


@pytest.fixture
def ranks() -> Iterator[RankContext]:
    with among_fake_peers() as first:
        yield first


def distrifuser() -> list[dict[str, Any]]:
    return [dict(vars(owner)) for owner in (DistriGroupNorm, PatchParallelismCommManager, pp_attn)]


def test_patches_are_undone_at_once_where_a_pipeline_cannot_be_made(
    plain: StableDiffusionXLPipeline, ranks: RankContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = distrifuser()

    def fails(*_: Any, **__: Any) -> None:
        assert distrifuser() != before
        raise ZeroDivisionError

    monkeypatch.setattr(RankPipeline, "_prepare", fails)
    with pytest.raises(ZeroDivisionError) as error:
        RankPipeline(cell(LATE, ranks, tiny_inputs()), ranks, plain)
    assert distrifuser() == before, error


def test_patches_are_undone_at_once_where_layers_cannot_be_wrapped(
    plain: StableDiffusionXLPipeline, ranks: RankContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = distrifuser()

    def fails(*_: Any, **__: Any) -> None:
        assert distrifuser() != before
        raise ZeroDivisionError

    monkeypatch.setattr(patch_step, "Layers", fails)
    with pytest.raises(ZeroDivisionError) as error:
        RankPipeline(cell(LATE, ranks, tiny_inputs()), ranks, plain)
    assert distrifuser() == before, error


def test_a_picture_that_fails_leaves_no_hook_and_the_next_one_is_as_ever(plain: StableDiffusionXLPipeline) -> None:
    alone, inputs = place_without_peers(), tiny_inputs(height=64, width=64)

    def interrupted(done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with RankPipeline(cell(REFERENCE, alone, inputs), alone, plain) as pipeline:
        expected = pipeline("a cat", 3, decode=False)
        with pytest.raises(KeyboardInterrupt):
            pipeline("a cat", 3, decode=False, on_step=interrupted)
        assert not pipeline.unet._forward_pre_hooks
        again = pipeline("a cat", 3, decode=False)
    assert torch.equal(again.latents, expected.latents)
    assert len(again.steps) == len(expected.steps) == len(TIMESTEPS)


def context_bytes() -> int:
    """What the layers of a slice hand to one peer, worked out on diffusers' own UNet of the whole picture.

    A 3x3 convolution, but the first: its first and last row. Self-attention: K and V of half of the tokens. GroupNorm:
    mean and variance of each group. All float32.
    """
    unet, elements = tiny_unet(), []

    def convolution(layer: nn.Conv2d, inputs: tuple[torch.Tensor, ...]) -> None:
        batch, channels, _, width = inputs[0].shape
        elements.append(2 * batch * channels * width)

    def attention(layer: Attention, inputs: tuple[torch.Tensor, ...]) -> None:
        batch, tokens, _ = inputs[0].shape
        elements.append(batch * tokens // 2 * 2 * layer.inner_dim)

    def norm(layer: nn.GroupNorm, inputs: tuple[torch.Tensor, ...]) -> None:
        elements.append(2 * len(inputs[0]) * layer.num_groups)

    for name, layer in unet.named_modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) and name != "conv_in":
            layer.register_forward_pre_hook(convolution)
        elif name.endswith("attn1"):
            layer.register_forward_pre_hook(attention, with_kwargs=False)
        elif isinstance(layer, nn.GroupNorm):
            layer.register_forward_pre_hook(norm)
    with torch.no_grad():
        unet(timestep=0, **tiny_inputs())
    return 4 * sum(elements)


@pytest.mark.parametrize("at_once", [7, 60])
def test_what_waits_in_a_queue_at_the_end_belongs_to_the_last_step(
    plain: StableDiffusionXLPipeline, ranks: RankContext, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """DistriFusion sends its context so many tensors at a time; what is left of a step goes with the next one."""
    monkeypatch.setattr(patch_step, "RankConfig", partial(RankConfig, comm_checkpoint=at_once))
    with RankPipeline(cell(LATE, ranks, tiny_inputs()), ranks, plain) as pipeline:
        for _ in range(2):
            sent = [step.traffic.bytes_sent for step in pipeline("a cat", 0, decode=False).steps]
            assert sum(sent) == len(TIMESTEPS) * (context_bytes() + PREDICTION)
            assert sent[: WARMUP + 1] == [context_bytes() + PREDICTION] * (WARMUP + 1)


def test_context_is_sent_only_where_a_silent_step_reads_it(
    plain: StableDiffusionXLPipeline, ranks: RankContext
) -> None:
    """Steps 0, 4 and 8 are synchronous: what is sent after 3 and 7 would be renewed, and nobody comes after 10."""
    preset = ContextBlocksConfig(name="otil_context", context=ContextConfig(block_size=2))
    config = cell(preset, ranks, tiny_inputs(), steps=11, warmup_steps=0, refresh_period=4, k=8)
    with RankPipeline(config, ranks, plain) as pipeline:
        for _ in range(2):
            steps = pipeline("a cat", 0, decode=False).steps
            assert [trace.step.index for trace in steps if trace.step.synchronous] == [0, 4, 8]
            silent = [trace for trace in steps if not trace.step.synchronous]
            assert [trace.step.index for trace in silent if trace.traffic.collectives == 2] == [1, 2, 5, 6, 9]
            alone = [trace.traffic for trace in silent if trace.traffic.collectives == 1]
            assert [traffic.bytes_sent for traffic in alone] == [PREDICTION] * 3


@pytest.mark.parametrize("engine", Engine)
def test_only_a_compiled_pipeline_decodes_with_groupnorms_of_ours_and_says_so(
    plain: StableDiffusionXLPipeline, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are called here, whatever the engine: what is looked at comes after them."""
    alone, inputs = place_without_peers(), tiny_inputs(height=64, width=64)
    called, own = cell(REFERENCE, alone, inputs, steps=2), plain.vae

    class Room:
        @staticmethod
        def build(config: Any, *arguments: Any) -> Any:
            return step_of(called).build(called, *arguments)

    monkeypatch.setattr(pipeline_module, "step_of", lambda config: Room)
    with RankPipeline(cell(REFERENCE, alone, inputs, steps=2, engine=engine), alone, plain) as ours:
        generated = ours("a cat", 3)
    with torch.no_grad():
        decoded = own.decode(generated.latents / own.config.scaling_factor).sample
    (expected,) = plain.image_processor.postprocess(decoded, output_type="np")
    if engine is Engine.compiled:
        assert ours.decoder_runs_as == "whole, GroupNorms spread"
        assert any(isinstance(layer, SpreadGroupNorm) for layer in plain.vae.decoder.modules())
        assert abs(generated.image - expected).max() < 1e-5
    else:
        assert ours.decoder_runs_as == "whole"
        assert plain.vae is own
        assert (generated.image == expected).all()
