"""One process, or one for each half of the CFG batch."""

from __future__ import annotations

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.methods.method import Method
from otil_exp.methods.whole.config import WholeConfig
from otil_exp.topology import Topology

REFERENCE = WholeConfig(name="reference")
"""One process, whatever method was asked for on one rank."""

BATCH_HALVES = WholeConfig(name="batch_split", halves_apart=True)
"""One slice a CFG half: no method that cuts slices has anything to cut or to exchange but the noise prediction."""


class Whole(Method[WholeConfig]):
    """The picture that others are compared with, or the same picture from two ranks."""

    def topology(self, preset: WholeConfig, config: ExperimentConfig) -> Topology:
        return Topology(world_size=2 if preset.halves_apart else 1, split_batch=preset.halves_apart)

    def check(self, preset: WholeConfig, config: ExperimentConfig) -> None:
        expected = (BATCH_HALVES if preset.halves_apart else REFERENCE).name
        if preset.name != expected:
            raise ValueError(
                f"preset.name={preset.name} with preset.halves_apart={str(preset.halves_apart).lower()}: others are "
                f"compared with it by what it is; leave preset.name={expected}"
            )


METHOD = Whole()


def without_slices(config: ExperimentConfig, preset: MethodConfig) -> MethodConfig:
    """What a method that cuts pictures comes to where there is one slice: the reference, or batch halves."""
    asked = config.topology
    if asked.world_size == 1:
        return REFERENCE
    return BATCH_HALVES if asked.split_batch and asked.world_size == 2 else preset
