"""A step of a stage: down, what the inner part made of an earlier latent carried on to now, and up."""

from __future__ import annotations

from diffusers import UNet2DConditionModel

from otil_exp.config import ExperimentConfig
from otil_exp.exchange.forecast import gain_for
from otil_exp.exchange.timetable import fold_timetable
from otil_exp.methods.fold.config import FoldConfig
from otil_exp.methods.fold.rules import gain_of
from otil_exp.methods.staged_rules import units_of
from otil_exp.methods.staged_step import StagesOnRank
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


def build(
    config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
) -> StagesOnRank:
    """The stage of this rank; expects an effective config, whose cuts are named."""
    preset = config.preset
    assert isinstance(preset, FoldConfig)
    units, gain = units_of(config), gain_of(preset)
    return StagesOnRank(
        unet,
        ranks,
        config.engine.name,
        units=units,
        segments=fold(units, named_cuts(units, preset.cut)),
        lay_out=lambda steps: fold_timetable(steps, ranks.topology.slices, preset.every),
        order=preset.order,
        gain=gain_for if isinstance(gain, str) else lambda age: gain,
        fitted_at=preset.every if gain == "fit" else None,
    )
