"""A step of a component: on what the others sent after the round before."""

from __future__ import annotations

from diffusers import UNet2DConditionModel

from otil_exp.config import ExperimentConfig
from otil_exp.methods.asyncdiff.config import AsyncDiffConfig
from otil_exp.methods.asyncdiff.rules import components, timetable
from otil_exp.methods.staged_rules import units_of
from otil_exp.methods.staged_step import StagesOnRank
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


def build(
    config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
) -> StagesOnRank:
    """The component of this rank; ranks are in the order of the data, the outer component first."""
    preset = config.preset
    assert isinstance(preset, AsyncDiffConfig)
    number = ranks.topology.slices - preset.stride + 1
    units = units_of(config)
    return StagesOnRank(
        unet,
        ranks,
        config.engine.name,
        units=units,
        segments=components(units, number),
        lay_out=lambda steps: timetable(steps, units, number, preset.stride),
    )
