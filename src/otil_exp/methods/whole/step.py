"""A step of a rank that computes whole pictures: the UNet as it is; with halves apart, their predictions gathered."""

from __future__ import annotations

import torch
from diffusers import UNet2DConditionModel

from otil_exp.config import ExperimentConfig
from otil_exp.rank_unet.alone import alone_parts
from otil_exp.rank_unet.assemblies import GatherHalves
from otil_exp.rank_unet.inputs import StepInputs, own_half
from otil_exp.rank_unet.kinds import ALIKE
from otil_exp.rank_unet.on_rank import LayersOnRank
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


class WholeOnRank(LayersOnRank):
    """reference, and batch halves."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        layers, choice, undo = alone_parts(config.engine.name, ranks, unet, traffic)
        super().__init__(layers, choice, traffic, cut=own_half(ranks), kinds=ALIKE, undo=undo)
        self._gather = GatherHalves(ranks) if ranks.topology.split_batch else None

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        noise_pred = self.run_layers(inputs, step)
        return noise_pred if self._gather is None else self._gather(noise_pred, step)


build = WholeOnRank
