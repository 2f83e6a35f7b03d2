"""What methods have in common whose ranks compute slices of rows."""

from __future__ import annotations

from otil_exp.choices import GroupNormKind
from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.methods.codec_scope import codec_of, codes_layers
from otil_exp.methods.method import C, Method, Slicing
from otil_exp.methods.whole.rules import without_slices


class PatchMethod(Method[C]):
    """Layers that know of the other slices: where there is one slice, there is nothing left to do."""

    def comes_to(self, preset: C, config: ExperimentConfig) -> MethodConfig:
        return without_slices(config, preset)

    def slicing(self, preset: C, config: ExperimentConfig) -> Slicing:
        return Slicing(rows=self.topology(preset, config).slices)

    def exchanges_in_layers(self, preset: C, config: ExperimentConfig) -> bool:
        return self.topology(preset, config).slices > 1

    def check(self, preset: C, config: ExperimentConfig) -> None:
        codec_of(config)

    def obstacle(self, preset: C, config: ExperimentConfig) -> str | None:
        if codes_layers(config):
            return "codec.scope=all encodes between distrifuser's layers, which cannot be compiled whole"
        if config.groupnorm is GroupNormKind.upstream:
            return "groupnorm=upstream is distrifuser's own code, which cannot be compiled whole"
        return None
