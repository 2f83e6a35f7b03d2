"""Rounds of as many steps as a half has ranks."""

from __future__ import annotations

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.methods.forecast_rules import check_order
from otil_exp.methods.method import Method
from otil_exp.methods.step_reuse.config import StepReuseConfig
from otil_exp.methods.whole.rules import without_slices


class StepReuse(Method[StepReuseConfig]):
    """Whole pictures on every rank; where a half has one rank there are no turns to take."""

    def comes_to(self, preset: StepReuseConfig, config: ExperimentConfig) -> MethodConfig:
        return without_slices(config, preset)

    def check(self, preset: StepReuseConfig, config: ExperimentConfig) -> None:
        check_order(preset.order)

    def uses(self, preset: StepReuseConfig, config: ExperimentConfig) -> frozenset[str]:
        return frozenset({"warmup_steps", "refresh"})


METHOD = StepReuse()
