"""Pictures by diffusers' own pipeline around a UNet of a test's own: what methods of stages are compared with."""

from __future__ import annotations

import functools
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from torch import Tensor, nn

from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.loading import Models
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.stages.parts import SegmentCall
from otil_exp.stages.tape import tape
from pipelines import Result

VASE = "a large white vase in the middle of a seamless pale grey background"
SHORT = ("num_inference_steps=7", "warmup_steps=2", "height=128", "width=128")
"""Synchronous steps 0, 1, 2, then four more; latents of 16 x 16."""

INNER = "down1.down/up0.attn0"
"""Cut of the shapes model at which AsyncDiff cuts SDXL's."""


def denoised(make: Any = None, scheduler: str = "ddim") -> Tensor:
    """Final latents of seven steps. make: the UNet to use, given the pipeline; None leaves the pipeline's."""
    model = ModelConfig(name="shapes", source="package", architecture="shapes")
    pipeline: StableDiffusionXLPipeline = Models().load(model, Scheduler[scheduler], torch.device("cpu"))
    if make is not None:
        pipeline.unet = make(pipeline)
    latents: Tensor = pipeline(
        VASE,
        height=128,
        width=128,
        num_inference_steps=7,
        guidance_scale=5.0,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
    ).images
    return latents


@functools.cache
def reference() -> Tensor:
    """Final latents of diffusers' own pipeline."""
    return denoised()


def furthest(results: list[Result], expected: Tensor) -> float:
    """Largest |d| of the final latents, over all ranks."""
    return max(float((result.latents - expected).abs().max()) for result in results)


class InParts(nn.Module):
    """The shapes UNet in one process, its inner part apart; `mix` says what stands for the inner part's output."""

    def __init__(self, pipeline: StableDiffusionXLPipeline) -> None:
        super().__init__()
        self.unet, self.config = pipeline.unet, pipeline.unet.config
        self.dtype, self.device = self.unet.dtype, self.unet.device
        self.add_embedding = self.unet.add_embedding
        self.scheduler = pipeline.scheduler
        units = tape(self.config, 16, 16)
        parts = [SegmentCall(self.unet, units, one) for one in fold(units, named_cuts(units, [INNER]))]
        self.down, self.inner, self.up = parts
        self.step = -1

    def forward(self, sample: Tensor, timestep: Any, encoder_hidden_states: Tensor, **given: Any) -> tuple[Tensor]:
        self.step += 1
        added = given["added_cond_kwargs"]
        self.rest = (encoder_hidden_states, added["text_embeds"], added["time_ids"])
        return (self.predict(sample),)

    def predict(self, sample: Tensor) -> Tensor:
        """The prediction of step self.step."""
        raise NotImplementedError

    def told(self, step: int) -> tuple[Tensor, ...]:
        """What a segment is told of a step."""
        return (self.scheduler.timesteps[step].float().expand(2), *self.rest)


class OneStepLate(InParts):
    """A fold as it is defined: after step 2 the inner part's output is forecast from those of the steps before."""

    def __init__(self, pipeline: StableDiffusionXLPipeline, order: int) -> None:
        super().__init__(pipeline)
        self.order, self.made = order, list[Tensor]()

    def predict(self, sample: Tensor) -> Tensor:
        told = self.told(self.step)
        state, *skips = self.down(*told, sample)
        self.made.append(self.inner(*told, state)[0])
        mixed = self.made[-1]
        if self.step > 2:
            mixed = self.made[-2] if self.order == 0 else 2 * self.made[-2] - self.made[-3]
        return self.up(*told, mixed, *skips)[0]


@functools.cache
def one_step_late(order: int) -> Tensor:
    """Final latents of a fold that is cut at INNER and waits for two steps."""
    return denoised(functools.partial(OneStepLate, order=order))
