"""The fold on real ranks: exact where it waits, as old as it says where it does not, and what it refuses."""

from __future__ import annotations

import functools

import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from torch import Tensor

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.rules import validate
from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.methods.rooms import method_of
from otil_exp.methods.staged_rules import units_of
from otil_exp.models.loading import load_pipeline
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.stages.parts import SegmentCall
from pipelines import Result, run_pipelines

VASE = "a large white vase in the middle of a seamless pale grey background"
SHORT = ("preset=fold", "num_inference_steps=7", "warmup_steps=2")
INNER = "preset.cut=[down1.down/up0.attn0]"
SMALL = ("height=128", "width=128")
"""16 x 16 latents."""


def diffusers_pipeline() -> StableDiffusionXLPipeline:
    return load_pipeline(ModelConfig(name="shapes", source="package", architecture="shapes"), Scheduler.ddim, torch.device("cpu"))


def denoised(pipeline: StableDiffusionXLPipeline) -> Tensor:
    return pipeline(
        VASE,
        height=128,
        width=128,
        num_inference_steps=7,
        guidance_scale=5.0,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
    ).images


@functools.cache
def reference() -> Tensor:
    """Final latents of diffusers' own pipeline."""
    return denoised(diffusers_pipeline())


class Emulated(torch.nn.Module):
    """A fold in one process, written down as its definition: the inner part's output replaced by its forecast.

    age 1, warm-up to step 2, seven steps: what the inner part made of the steps before is known, and of this one not.
    """

    def __init__(self, pipeline: StableDiffusionXLPipeline, typed: Typed, order: int, every: int = 1) -> None:
        super().__init__()
        self.unet, self.config = pipeline.unet, pipeline.unet.config
        self.dtype, self.add_embedding = self.unet.dtype, self.unet.add_embedding
        units = units_of(typed(*SHORT, *SMALL, INNER, "topology=2gpu_nosplit"))
        segments = fold(units, named_cuts(units, ["down1.down/up0.attn0"]))
        self.down, self.inner, self.up = [SegmentCall(self.unet, units, segment) for segment in segments]
        self.order, self.every, self.made = order, every, list[Tensor]()

    def forward(self, sample, timestep, text, added_cond_kwargs, return_dict, **_):
        told = (timestep.expand(2).float(), text, added_cond_kwargs["text_embeds"], added_cond_kwargs["time_ids"])
        state, *skips = self.down(*told, sample)
        (now,) = self.inner(*told, state)
        self.made.append(now)
        if len(self.made) <= 3:
            mixed = now
        elif self.order == 0:
            mixed = self.made[-2]
        else:
            mixed = 2 * self.made[-2] - self.made[-3]
        return (self.up(*told, mixed, *skips)[0],)


def emulated(typed: Typed, order: int) -> Tensor:
    pipeline = diffusers_pipeline()
    pipeline.unet = Emulated(pipeline, typed, order)
    return denoised(pipeline)


def furthest(results: list[Result], expected: Tensor) -> float:
    """Largest |d| of the final latents, over all ranks."""
    return max(float((result.latents - expected).abs().max()) for result in results)


@pytest.mark.ranks
def test_two_stages(typed: Typed) -> None:
    """Exact where every step waits; else what the definition says; every rank ends with the latent of rank 0."""
    cell = functools.partial(typed, *SHORT, *SMALL, INNER, "topology=2gpu_nosplit")
    waiting, refreshing, plain, line = run_pipelines(
        [cell("warmup_steps=6"), cell("refresh.period=1"), cell("preset.order=0"), cell()], VASE
    )
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(refreshing, reference()) < 1e-5
    assert furthest(plain, emulated(typed, 0)) < 1e-5
    assert furthest(line, emulated(typed, 1)) < 1e-5
    assert furthest(plain, reference()) > 1e-3

    # 128 x 4 x 4 fp32 down and back, two samples: 16 KiB each way; the final latent is broadcast, 4 x 16 x 16.
    outer, inner = ([step.traffic.bytes_sent for step in result.steps] for result in line)
    assert outer == [16384] * 6 + [4096]  # nothing is begun in the last step
    assert inner == [16384] * 3 + [0] + [16384] * 3


@pytest.mark.ranks
def test_three_nested_stages_and_a_cut_inside_a_transformer_wait_exactly(typed: Typed) -> None:
    cell = functools.partial(typed, *SHORT, *SMALL, "topology=3gpu_nosplit")
    waiting, running, fitted = run_pipelines(
        [cell("warmup_steps=6"), cell("preset.every=2"), cell("preset.gain=fit", "warmup_steps=3")], VASE
    )
    assert furthest(waiting, reference()) < 1e-5
    for results in (running, fitted):
        assert 1e-4 < furthest(results, reference()) < 5
        assert all(torch.equal(result.latents, results[0].latents) for result in results)


@pytest.mark.ranks
def test_halves_of_the_batch_apart(typed: Typed) -> None:
    cell = functools.partial(typed, *SHORT, *SMALL, INNER, "topology=4gpu_split")
    waiting, line = run_pipelines([cell("warmup_steps=6"), cell()], VASE)
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(line, emulated(typed, 1)) < 1e-5


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ("topology=2gpu_split",),
            "a half of the batch has one rank.*use topology=2gpu_nosplit or topology=4gpu_split",
        ),
        (("preset.order=3",), r"preset.order=3: use 0 \(as it is\), 1 \(a line\)"),
        (("preset.every=0",), "preset.every=0: .*use 1 to num_inference_steps=50"),
        (("preset.gain=much",), "preset.gain=much: use a number such as 0.5, age .* or fit"),
        (("preset.cut=[down0.down/up0.attn0]",), "would cross ranks; use down0.down/"),
        (("preset.cut=[nowhere/up0.attn0]",), "does not exist: use OUTSIDE/INSIDE, for example"),
        (("topology=3gpu_nosplit", INNER), "3 stages meet at 2 cuts; use preset.cut="),
        (("topology=8gpu_nosplit", "topology.world_size=12"), "12 stages: this UNet can be cut into 2 to 9"),
        (("height=132",), "height=132 is not a multiple of 8"),
    ],
)
def test_what_contradicts_is_refused(typed: Typed, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        validate(typed("preset=fold", "topology=2gpu_nosplit", *overrides))


def test_the_record_says_where_it_is_cut(typed: Typed) -> None:
    config = effective(typed("preset=fold", "topology=2gpu_nosplit"))
    assert config.preset.cut == ["down0.down/up1.attn0"]
    assert effective(typed("preset=fold", "topology=2gpu_nosplit", "preset.cut=[down0.down/up1.attn0]")) == config
    sdxl = effective(typed("preset=fold", "topology=4gpu_split", "model=sdxl_random"))
    assert sdxl.preset.cut == ["down1.down/up0.attn1.4"]


def test_equal_cells_are_one(typed: Typed) -> None:
    def form(*overrides: str):
        return effective(typed("preset=fold", "topology=2gpu_nosplit", *overrides))

    assert form("preset.gain=1") == form("preset.gain=1.0") != form()
    assert form("preset.order=0", "preset.gain=0.7") == form("preset.order=0")
    assert form("k.budget=3", "codec=fp8") == form()
    assert effective(typed("preset=fold", "topology=1gpu")).topology.world_size == 1


def test_it_has_no_seams_and_no_rule_on_the_height(typed: Typed) -> None:
    config = typed("preset=fold", "topology=2gpu_nosplit", "height=136", "width=200")
    validate(config)
    assert method_of(config).slicing(config.preset, config).rows == 1
