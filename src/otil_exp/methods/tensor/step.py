"""A step of tensor parallelism: a part of every layer, sums over the ranks inside, both halves of the batch after."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import StaleSums
from otil_exp.config import ExperimentConfig
from otil_exp.methods.tensor.config import TensorConfig
from otil_exp.rank_unet.alone import alone_parts
from otil_exp.rank_unet.assemblies import GatherHalves, mean_over
from otil_exp.rank_unet.engine_choice import EngineChoice, choose_engine
from otil_exp.rank_unet.inputs import StepInputs, own_half
from otil_exp.rank_unet.kinds import ALIKE, synchronous_or_silent
from otil_exp.rank_unet.layers import StepLayers
from otil_exp.rank_unet.on_rank import LayersOnRank
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.layers import Layers
from otil_exp.upstream.patches import applied


class TensorOnRank(LayersOnRank):
    """tensor, tensor_stale."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, TensorConfig)
        stale = config.preset.stale
        kinds = ALIKE if stale is None else synchronous_or_silent(config.warmup_steps)
        layers, choice, undo = _parts(config, ranks, unet, traffic)
        super().__init__(layers, choice, traffic, cut=own_half(ranks), kinds=kinds, undo=undo)
        self._shards = ranks if stale is StaleSums.peers else None
        self._gather = GatherHalves(ranks) if ranks.topology.split_batch else None

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        noise_pred = self.run_layers(inputs, step)
        if self._shards is not None and not step.synchronous:
            # Own partial sums alone are fresh, so every rank predicts something else: without a common prediction
            # their latents would drift apart from step to step.
            noise_pred = mean_over(noise_pred, self._shards)
        return noise_pred if self._gather is None else self._gather(noise_pred, step)


def _parts(
    config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
) -> tuple[StepLayers, EngineChoice, ExitStack]:
    assert isinstance(config.preset, TensorConfig)
    if ranks.topology.slices == 1:
        return alone_parts(config.engine.name, ranks, unet, traffic)
    choice = choose_engine(config.engine.name, ranks, exchanges_in_layers=True)
    distri_config = RankConfig(
        ranks,
        parallelism="tensor",
        mode="full_sync",
        warmup_steps=config.warmup_steps,
        height=config.height,
        width=config.width,
        guidance=config.guidance_scale > 1,
    )
    with ExitStack() as undo:
        undo.enter_context(applied("peft_flag", "conv_shortcut", "partial_sums"))
        layers = Layers(
            unet,
            distri_config,
            stale=config.preset.stale,
            stale_layers=config.preset.stale_layers,
            order=config.preset.order,
        )
        return layers, choice, undo.pop_all()


build = TensorOnRank
