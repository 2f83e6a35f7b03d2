"""A step of a naive patch: the own rows or columns as if they were a picture, then all of them side by side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from diffusers import UNet2DConditionModel

from otil_exp.config import ExperimentConfig
from otil_exp.methods.naive_patch.config import NaivePatchConfig, SplitScheme
from otil_exp.rank_unet.alone import alone_parts
from otil_exp.rank_unet.assemblies import GatherSlices
from otil_exp.rank_unet.inputs import StepInputs, own_part
from otil_exp.rank_unet.kinds import ALIKE, FIRST, StepKinds, steady
from otil_exp.rank_unet.on_rank import LayersOnRank
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter

ROWS, COLUMNS = 2, 3
"""Dimensions of a latent (b, 4, H, W)."""


def split_dim(scheme: SplitScheme) -> Callable[[int], int]:
    """Dimension along which a step is cut, given its counter (naive_patch_sdxl.py:122-131)."""
    if scheme is SplitScheme.alternate:
        return lambda counter: ROWS + counter % 2
    return lambda counter: ROWS if scheme is SplitScheme.row else COLUMNS


class NaivePatchOnRank(LayersOnRank):
    """naive_patch."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, NaivePatchConfig)
        dim = split_dim(config.preset.split_scheme)
        turns = config.preset.split_scheme is SplitScheme.alternate
        kinds = StepKinds(examples=(FIRST, steady(1)), of=lambda step: dim(step.counter) - ROWS) if turns else ALIKE
        layers, choice, undo = alone_parts(config.engine.name, ranks, unet, traffic)
        super().__init__(layers, choice, traffic, cut=own_part(ranks, dim), kinds=kinds, undo=undo)
        self._gather = GatherSlices(ranks, dim)

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        return self._gather(self.run_layers(inputs, step), step)


build = NaivePatchOnRank
