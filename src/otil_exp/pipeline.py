"""From a config to a ready pipeline on this rank: diffusers' own pipeline around a UNet that knows its rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from otil_exp.choices import Engine, Products
from otil_exp.config import ExperimentConfig
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.fp8_gpus import check_device
from otil_exp.methods.geometry import depth_of, latent_size, steps_of
from otil_exp.methods.rooms import step_of
from otil_exp.models.families import Pipeline, family_of
from otil_exp.models.loading import Models
from otil_exp.phases import PREPARING, phase
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.on_rank import OnRank
from otil_exp.rank_unet.products import MARGIN, Fp8Products
from otil_exp.rank_unet.sliced.decoder import sliced_vae
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.schedule import Step
from otil_exp.spread_groupnorm import spread_groupnorms
from otil_exp.text_encoder_graphs import replay_text_encoders
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter

if TYPE_CHECKING:
    from otil_exp.compiled_cell import Compiled


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
    """Final latents (1, 4, H / 8, W / 8), exact on rank 0; on the others, too, unless a method lets them end apart."""

    image: np.ndarray | None
    """(H, W, 3) float32 in [0, 1]; None where the VAE was not run."""

    steps: list[StepTrace]


class RankPipeline:
    """The pipeline of one rank; every rank of the run calls it with the same prompt and seed.

    config: an effective config. ranks: this rank's place, from otil_exp.topology.join. pipeline: diffusers' own, on the
    rank's device, but for a UNet that is cut by depth, which may be in host memory. Its UNet is changed, and its VAE
    replaced by one over the same weights where the engine has another. Close it, or use it as a context manager: it
    holds run-time patches of distrifuser.
    """

    def __init__(self, config: ExperimentConfig, ranks: RankContext, pipeline: Pipeline) -> None:
        self.config = config
        self.ranks = ranks
        self.traffic = TrafficCounter()
        self.steps = steps_of(config)
        self.pipeline = pipeline
        self._products: Fp8Products | None = None
        self._texts = ExitStack()
        if config.engine.products is Products.fp8:
            check_device(ranks.device)
        on_rank = step_of(config).build(config, ranks, pipeline.unet, self.traffic)
        on_rank.timesteps = lambda: pipeline.scheduler.timesteps
        height, width = latent_size(config)
        batch = 2 if config.guidance_scale > 1 else 1
        self.unet = RankUNet(on_rank, (batch, pipeline.unet.config.in_channels, height, width))
        self.runs_as = on_rank.runs_as
        self.pipeline.unet = self.unet
        with ExitStack() as undo:
            undo.callback(self.close)
            if on_rank.captured:
                self._texts = replay_text_encoders(pipeline, CudaGraphRecorder())
                self.runs_as += ", text encoders replayed"
            if config.engine.products is Products.fp8:
                self._products = Fp8Products(on_rank.unet)
                self.runs_as += ", products in fp8"
            self.decoder_runs_as = self._choose_decoder()
            with phase(PREPARING[config.engine.name.name]):
                self.compiled = self._prepare(on_rank, self._example(batch))
            undo.pop_all()

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
        """Undo the patches of distrifuser, and drop all graphs."""
        self._texts.close()
        self.unet.close()

    @torch.no_grad()
    def __call__(
        self, prompt: str, seed: int, *, decode: bool = True, on_step: Callable[[int], None] | None = None
    ) -> Generated:
        """Denoise one prompt from the noise of one seed, and decode it.

        The noise is drawn on the CPU, so that it is the same on every device. on_step gets the number of steps done.
        """
        self.calibrate(prompt, seed)
        clock, traces, final = _StepClock(self.ranks.device), list[tuple[Step, Traffic]](), list[Tensor]()

        def end_of_step(_: Any, index: int, __: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            latents = self.unet.exchange(tensors["latents"], self.steps[index])
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
            try:
                images = self._denoised(prompt, seed, "np" if decode else "latent", end_of_step)
            finally:
                start.remove()
            self.traffic.take()  # of a decoder over all ranks
            self.unet.finish()
            traces[-1][1].add(self.traffic.take())  # what the last step left in a queue
        costs = [StepTrace(step, ms, sent) for (step, sent), ms in zip(traces, clock.intervals_ms(), strict=True)]
        return Generated(latents=final[0], image=images[0] if decode else None, steps=costs)

    @torch.no_grad()
    def calibrate(self, prompt: str, seed: int) -> None:
        """Where products are in fp8, take their scales from the first warmup_steps + 1 steps of a picture, once.

        These are the synchronous steps of a method that has some. The layers are called as modules, and nothing is kept
        but the scales: the picture itself, if it is wanted, is made by the next call. All ranks must call it.
        """
        if self._products is None or self._products.calibrated:
            return
        steps = min(self.config.warmup_steps + 1, len(self.steps))

        def end_of_step(pipeline: Any, index: int, _: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            latents = self.unet.exchange(tensors["latents"], self.steps[index])
            pipeline._interrupt = index + 1 >= steps  # diffusers' way to leave the other steps out
            return {"latents": latents}

        with (
            phase("calibrating", live=False),
            self._products.calibrating(self.ranks.topology.world_size),
            self.unet.calling_modules(),
        ):
            self.unet.begin(self.steps)
            self._denoised(prompt, seed, "latent", end_of_step)
            self.unet.finish()
        self._calibrated_on = {"prompt": prompt, "seed": seed, "steps": steps}

    def products(self) -> dict[str, Any] | None:
        """For the record, of this rank: how products are in fp8, and what was cut; None where they are not, or not
        calibrated."""
        if self._products is None or not self._products.calibrated:
            return None
        return {
            "kind": "fp8",
            "layers": self._products.multiplying(),
            "margin": MARGIN,
            "calibrated_on": self._calibrated_on,
            "overflow": self._products.overflow(),
        }

    def _choose_decoder(self) -> str:
        """Give diffusers' pipeline the VAE that the engine asks for. Returns, for the record, how that decodes."""
        if self.config.engine.sliced_decode:
            self.pipeline.vae = sliced_vae(self.pipeline.vae, self.ranks)
            return "in slices"
        if self.config.engine.name is Engine.compiled:
            self.pipeline.vae = spread_groupnorms(self.pipeline.vae)
            return "whole, GroupNorms spread"
        return "whole"

    def _denoised(self, prompt: str, seed: int, output_type: str, end_of_step: Callable[..., dict[str, Tensor]]) -> Any:
        """What diffusers' pipeline makes of one prompt: pictures (1, H, W, 3), or latents."""
        return self.pipeline(
            prompt=prompt,
            height=self.config.height,
            width=self.config.width,
            num_inference_steps=self.config.num_inference_steps,
            guidance_scale=self.config.guidance_scale,
            generator=torch.Generator().manual_seed(seed),
            output_type=output_type,
            callback_on_step_end=end_of_step,
            callback_on_step_end_tensor_inputs=["latents"],
        ).images

    def _prepare(self, on_rank: OnRank, inputs: StepInputs) -> Compiled | None:
        """Let the UNet make its buffers and graphs, before any picture is timed; what of them was compiled."""
        if self.config.engine.name is not Engine.compiled:
            self.unet.prepare(**vars(inputs))
            return None
        from otil_exp.compile_ahead import compiling  # late: it loads the compiler

        with compiling(self.config, self.ranks, on_rank, inputs) as compiled:
            self.unet.prepare(**vars(inputs))
        return compiled

    def _example(self, batch: int) -> StepInputs:
        """Inputs of a step of the right shapes."""
        config, pipeline, device = self.config, self.pipeline, self.ranks.device
        text, added = family_of(pipeline).conditions(pipeline, config.height, config.width, device)
        latents = torch.zeros(batch, pipeline.unet.config.in_channels, *latent_size(config))
        return StepInputs(
            sample=latents.to(device, text.dtype),
            timestep=torch.ones((), device=device),
            encoder_hidden_states=text.repeat(batch, 1, 1),
            added_cond_kwargs={name: tensor.repeat(batch, 1) for name, tensor in added.items()},
        )


def build_pipeline(
    config: ExperimentConfig, ranks: RankContext, models: Models | None = None, *, keep_weights: bool = False
) -> RankPipeline:
    """The pipeline of this rank for an effective config.

    models: where weights are found, and with keep_weights left, for another pipeline of this process.
    """
    with phase("loading weights"):
        loaded = (models or Models()).load(
            config.model,
            config.scheduler,
            ranks.device,
            keep=keep_weights,
            unet_on_host=depth_of(config) is not None,  # the rank has only a stage of it on its device
        )
    return RankPipeline(config, ranks, loaded)


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
