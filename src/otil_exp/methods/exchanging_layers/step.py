"""A step of a patch whose layers exchange their context: the own rows, then all of them side by side."""

from __future__ import annotations

import torch
from diffusers import UNet2DConditionModel

from otil_exp.config import ExperimentConfig
from otil_exp.methods.exchanging_layers.config import ExchangingLayersConfig, SyncMode
from otil_exp.methods.patch_step import PatchOnRank
from otil_exp.rank_unet.assemblies import GatherSlices
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.kinds import first_and_later, synchronous_first_and_later
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


class ExchangingLayersOnRank(PatchOnRank):
    """full_sync, distrifusion."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, ExchangingLayersConfig)
        mode = config.preset.sync_mode
        waits = mode is SyncMode.full_sync
        kinds = first_and_later() if waits else synchronous_first_and_later(config.warmup_steps)
        super().__init__(config, ranks, unet, traffic, mode=mode.value, kinds=kinds, order=config.preset.order)
        self._gather = GatherSlices(ranks)

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        return self._gather(self.run_layers(inputs, step), step)


build = ExchangingLayersOnRank
