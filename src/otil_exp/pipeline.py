"""From a config to a ready pipeline on this rank: diffusers' own SDXL pipeline around a UNet that knows its rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
import torch
from diffusers import StableDiffusionXLPipeline
from torch import Tensor

from otil_exp.config import ExperimentConfig, gn_sync_of
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange import (
    Codec,
    ContextExchange,
    LatentExchange,
    ReplayedExchange,
    Selection,
    Step,
    repair_pair,
    step_kinds,
)
from otil_exp.loading import Models
from otil_exp.phases import PREPARING, phase
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter
from otil_exp.upstream import MakeContextExchange, build_unet, sliced_vae
from otil_exp.validate import grid_of


@dataclass(frozen=True)
class StepTrace:
    """What one step of one picture cost this rank."""

    step: Step
    ms: float
    traffic: Traffic


@dataclass(frozen=True)
class Generated:
    """A picture, or its latents, and how it came about."""

    latents: Tensor
    """Final latents (1, 4, H / 8, W / 8), the same on every rank."""

    image: np.ndarray | None
    """(H, W, 3) float32 in [0, 1]; None where the VAE was not run."""

    steps: list[StepTrace]


class RankPipeline:
    """The pipeline of one rank; every rank of the run calls it with the same prompt and seed.

    config: an effective config (otil_exp.effective). ranks: this rank's place, from otil_exp.topology.join. pipeline:
    diffusers' own, on the rank's device; its UNet is changed. Close it, or use it as a context manager: it holds
    run-time patches of distrifuser.
    """

    def __init__(self, config: ExperimentConfig, ranks: RankContext, pipeline: StableDiffusionXLPipeline) -> None:
        self.config = config
        self.ranks = ranks
        self.traffic = TrafficCounter()
        self.exchange: LatentExchange | ReplayedExchange | None = _exchange(config, ranks)
        self.steps = step_kinds(
            config.num_inference_steps, config.warmup_steps, config.refresh.period, finalizes=self.exchange is not None
        )
        self.pipeline = pipeline
        self.unet = build_unet(
            self.pipeline.unet,
            ranks,
            parallelism=config.preset.parallelism,
            sync_mode=config.preset.sync_mode,
            split_scheme=config.preset.split_scheme,
            noise_gather=config.preset.noise_gather,
            cfg_repair=config.preset.cfg_repair,
            gn_sync=gn_sync_of(config.preset),
            groupnorm=config.groupnorm,
            stale=config.preset.stale,
            stale_layers=config.preset.stale_layers,
            make_context=_make_context(config, ranks),
            codec=_prediction_codec(config),
            warmup_steps=config.warmup_steps,
            height=config.height,
            width=config.width,
            guidance=config.guidance_scale > 1,
            engine=config.engine.name,
            traffic=self.traffic,
            repair=repair_pair,
        )
        self.pipeline.unet = self.unet
        if config.engine.sliced_decode:
            self.pipeline.vae = sliced_vae(self.pipeline.vae, ranks)
        with phase(PREPARING[config.engine.name.name]):
            self._prepare()

    @property
    def decodes(self) -> bool:
        """Whether this rank has to decode for rank 0 to have the picture."""
        return self.ranks.is_main or self.config.engine.sliced_decode

    def __enter__(self) -> RankPipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Undo the patches of distrifuser, and drop all graphs: NCCL does not end before those of its collectives."""
        self.unet.close()
        self.exchange = None

    @torch.no_grad()
    def __call__(
        self, prompt: str, seed: int, *, decode: bool = True, on_step: Callable[[int], None] | None = None
    ) -> Generated:
        """Denoise one prompt from the noise of one seed, and decode it.

        The noise is drawn on the CPU, so that it is the same on every device. on_step gets the number of steps done.
        """
        clock, traces, final = _StepClock(self.ranks.device), list[tuple[Step, Traffic]](), list[Tensor]()

        def end_of_step(_: Any, index: int, __: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            latents = self._exchanged(self.steps[index], tensors["latents"])
            clock.tick()
            traces.append((self.steps[index], self.traffic.take()))
            if index + 1 == len(self.steps):
                final.append(latents)
            if on_step is not None:
                on_step(index + 1)
            return {"latents": latents}

        with self.traffic.installed():
            self.traffic.take()
            self.unet.begin(self.steps)
            start = self.unet.register_forward_pre_hook(lambda *_: clock.start())
            images = self.pipeline(
                prompt=prompt,
                height=self.config.height,
                width=self.config.width,
                num_inference_steps=self.config.num_inference_steps,
                guidance_scale=self.config.guidance_scale,
                generator=torch.Generator().manual_seed(seed),
                output_type="np" if decode else "latent",
                callback_on_step_end=end_of_step,
                callback_on_step_end_tensor_inputs=["latents"],
            ).images
            start.remove()
            self.unet.finish()
        costs = [StepTrace(step, ms, sent) for (step, sent), ms in zip(traces, clock.intervals_ms(), strict=True)]
        return Generated(latents=final[0], image=images[0] if decode else None, steps=costs)

    def _exchanged(self, step: Step, latents: Tensor) -> Tensor:
        """OTIL's exchange after the scheduler step; other methods have none."""
        if self.exchange is None:
            return latents
        if step.kind == "steady":
            return self.exchange.step(latents)
        if step.kind != "warmup":
            # A refresh brings the exact noise prediction, but what it is subtracted from was stale in remote slices.
            latents = self.exchange.finalize(latents)
        self.exchange.remember(latents)
        return latents

    def _prepare(self) -> None:
        """Let the UNet make its buffers (and graphs) from inputs of the right shapes, before any picture is timed."""
        config, pipeline = self.config, self.pipeline
        batch = 2 if config.guidance_scale > 1 else 1
        embeds, _, pooled, _ = pipeline.encode_prompt("", device=self.ranks.device, do_classifier_free_guidance=False)
        ids = torch.tensor([[config.height, config.width, 0, 0, config.height, config.width]])
        factor = pipeline.vae_scale_factor
        latents = torch.zeros(batch, pipeline.unet.config.in_channels, config.height // factor, config.width // factor)
        latents = latents.to(self.ranks.device, embeds.dtype)
        self.unet.prepare(
            sample=latents,
            timestep=torch.ones((), device=self.ranks.device),
            encoder_hidden_states=embeds.repeat(batch, 1, 1),
            added_cond_kwargs={
                "text_embeds": pooled.repeat(batch, 1),
                "time_ids": ids.to(self.ranks.device, embeds.dtype).repeat(batch, 1),
            },
        )
        if isinstance(self.exchange, LatentExchange) and self.exchange.replayable and self.unet.captured:
            self.exchange = ReplayedExchange(self.exchange, self.traffic, CudaGraphRecorder())
            self.exchange.prepare(latents[:1])


def build_pipeline(
    config: ExperimentConfig, ranks: RankContext, models: Models | None = None, *, keep_weights: bool = False
) -> RankPipeline:
    """The pipeline of this rank for an effective config.

    models: where weights are found, and with keep_weights left, for another pipeline of this process.
    """
    with phase("loading weights"):
        loaded = (models or Models()).load(config.model, config.scheduler, ranks.device, keep=keep_weights)
    return RankPipeline(config, ranks, loaded)


def _exchange(config: ExperimentConfig, ranks: RankContext) -> LatentExchange | None:
    transmit = config.preset.transmit
    if transmit is None:
        return None
    return LatentExchange(
        grid_of(config, ranks.topology),
        slice_index=ranks.slice_index,
        slices=ranks.topology.slices,
        k=int(config.k.budget),
        score=transmit.score,
        against=transmit.against.value,
        polling=transmit.polling,
        group=ranks.batch_group,
    )


def _make_context(config: ExperimentConfig, ranks: RankContext) -> MakeContextExchange | None:
    """How the exchange of layer context is made, once the layers have said what there is."""
    context = config.preset.context
    if context is None:
        return None
    selection = Selection(
        k=int(config.k.budget),
        score=context.score,
        against=context.against.value,
        polling=context.polling,
        score_on=context.score_on.value,
        halos=context.halos.value,
    )
    return partial(
        ContextExchange,
        grid_of(config, ranks.topology),
        selection=selection,
        slice_index=ranks.slice_index,
        slices=ranks.topology.slices,
        overlap=context.overlap.value,
        every=context.every,
        codec=Codec(config.codec.quantizer, config.codec.residual),
        group=ranks.batch_group,
    )


def _prediction_codec(config: ExperimentConfig) -> Codec | None:
    """How a gathered noise prediction is written down, where it is what a method sends."""
    if config.preset.context is not None or config.codec.quantizer == "none":
        return None
    return Codec(config.codec.quantizer, config.codec.residual)


class _StepClock:
    """Times between ticks: CUDA events, read once at the end (no synchronisation on the way), or the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def start(self) -> None:
        """Begin with the first call of the UNet: encoding the prompt is no step."""
        if not self._marks:
            self.tick()

    def tick(self) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def intervals_ms(self) -> list[float]:
        """Milliseconds between consecutive ticks."""
        pairs = list(pairwise(self._marks))
        if self._cuda:
            torch.cuda.synchronize()
            return [start.elapsed_time(end) for start, end in pairs]
        return [(end - start) * 1e3 for start, end in pairs]
