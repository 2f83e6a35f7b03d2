"""Which folds there are, and where they are cut."""

from __future__ import annotations

import math
from dataclasses import replace

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.exchange.timetable import fold_timetable
from otil_exp.methods.fold.config import FoldConfig
from otil_exp.methods.forecast_rules import check_order
from otil_exp.methods.method import Depth, Method
from otil_exp.methods.staged_rules import depth_of, units_of
from otil_exp.methods.topology_advice import typed
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.stages.cut import Cut, balanced_cuts, check_stages, fold, named_cuts
from otil_exp.topology import Topology


class Fold(Method[FoldConfig]):
    """As many stages as a half has ranks; no rule on the height but the model's own."""

    shares_weights = False

    def comes_to(self, preset: FoldConfig, config: ExperimentConfig) -> MethodConfig:
        return REFERENCE if config.topology.world_size == 1 else preset

    def check(self, preset: FoldConfig, config: ExperimentConfig) -> None:
        check_order(preset.order, highest=2)
        if not 1 <= preset.every <= config.num_inference_steps:
            raise ValueError(
                f"preset.every={preset.every}: the inner part computes every so-manieth latent; use 1 to "
                f"num_inference_steps={config.num_inference_steps}, such as preset.every=2"
            )
        gain_of(preset)
        if config.topology.world_size > 1:
            _check_ranks(self.topology(preset, config))
            self.cuts(preset, config)

    def cuts(self, preset: FoldConfig, config: ExperimentConfig) -> tuple[Cut, ...]:
        """Outermost first. Raises ValueError for cuts that do not exist, or not as many as the stages need."""
        units, stages = units_of(config), self.topology(preset, config).slices
        check_stages(units, stages)
        if not preset.cut:
            return balanced_cuts(units, stages, preset.every)
        if len(preset.cut) != stages - 1:
            found = ",".join(cut.name(units) for cut in balanced_cuts(units, stages, preset.every))
            meet = "1 cut" if stages == 2 else f"{stages - 1} cuts"
            raise ValueError(
                f"preset.cut=[{','.join(preset.cut)}]: {stages} stages meet at {meet}; use "
                f"preset.cut=[{found}], or preset.cut=[] for the balanced one"
            )
        return named_cuts(units, preset.cut)

    def normal_form(self, preset: FoldConfig, config: ExperimentConfig) -> FoldConfig:
        units = units_of(config)
        gain = gain_of(preset)
        return replace(
            preset,
            cut=[cut.name(units) for cut in self.cuts(preset, config)],
            gain="age" if preset.order == 0 else gain if isinstance(gain, str) else str(gain),
        )

    def depth(self, preset: FoldConfig, config: ExperimentConfig) -> Depth:
        units, stages = units_of(config), self.topology(preset, config).slices
        timetable = fold_timetable(self.steps(preset, config), stages, preset.every)
        return depth_of(units, fold(units, named_cuts(units, preset.cut)), timetable)

    def uses(self, preset: FoldConfig, config: ExperimentConfig) -> frozenset[str]:
        return frozenset({"warmup_steps", "refresh"})


def _check_ranks(topology: Topology) -> None:
    """Raise ValueError, with what to type, if a half of the batch has one rank: no depth to cut."""
    if topology.slices < 2:
        whole = replace(topology, split_batch=False)
        more = replace(topology, world_size=2 * topology.world_size, split_batch=True)
        raise ValueError(
            f"preset=fold with topology={topology.name}: a half of the batch has one rank, and a UNet is cut into "
            f"two stages or more; use {typed(whole)} or {typed(more)}"
        )


def gain_of(preset: FoldConfig) -> float | str:
    """What preset.gain means: age, fit or a number. Raises ValueError for anything else."""
    if preset.gain in ("age", "fit"):
        return preset.gain
    try:
        gain = float(preset.gain)
    except ValueError:
        gain = math.nan
    if not math.isfinite(gain):
        raise ValueError(f"preset.gain={preset.gain}: use a number such as 0.5, age (1 at one step, 0.5 beyond) or fit")
    return gain


METHOD = Fold()
