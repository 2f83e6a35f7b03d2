"""Slices of rows, of columns, or of both in turn."""

from __future__ import annotations

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.methods.method import Method, Slicing
from otil_exp.methods.naive_patch.config import NaivePatchConfig, SplitScheme
from otil_exp.methods.whole.rules import without_slices


class NaivePatch(Method[NaivePatchConfig]):
    """Nothing is exchanged but the noise prediction; there is no step that differs from the first."""

    def comes_to(self, preset: NaivePatchConfig, config: ExperimentConfig) -> MethodConfig:
        return without_slices(config, preset)

    def slicing(self, preset: NaivePatchConfig, config: ExperimentConfig) -> Slicing:
        slices = self.topology(preset, config).slices
        rows = preset.split_scheme in (SplitScheme.row, SplitScheme.alternate)
        columns = preset.split_scheme in (SplitScheme.col, SplitScheme.alternate)
        return Slicing(rows=slices if rows else 1, columns=slices if columns else 1)


METHOD = NaivePatch()
