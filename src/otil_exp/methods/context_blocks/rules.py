"""Blocks of layer context: they must tile the slice, and cover whole pixels of the UNet's lowest level."""

from __future__ import annotations

from dataclasses import replace

from otil_exp.choices import GnSync, Halos, Overlap
from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.exchange import check_blocks, split_budget
from otil_exp.methods.codec_scope import codes_layers
from otil_exp.methods.context_blocks.config import ContextBlocksConfig, ContextConfig
from otil_exp.methods.forecast_rules import check_order
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.methods.patch import PatchMethod
from otil_exp.methods.selection_rules import budget_of, check_selection, grid_of, normal_selection
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.models.architecture import architecture_of


class ContextBlocks(PatchMethod[ContextBlocksConfig]):
    """otil_context."""

    def check(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> None:
        if gn_sync_of(preset.gn_sync) is GnSync.fused:
            raise ValueError(
                "preset.gn_sync=fused with preset.context: where layers get context block by block, GroupNorm stays "
                "exact; use preset.gn_sync=true"
            )
        check_order(preset.order)
        if preset.context.every < 1:
            raise ValueError(f"preset.context.every={preset.context.every}: use 1 (every step) or more")
        cut = self.slicing(preset, config).rows > 1
        if cut:
            self._check_width(config)  # before blocks that would tile such a width, and not do either
        check_selection("preset.context", preset.context, config)
        super().check(preset, config)
        if cut:
            self._check_cells(preset.context, config)

    def _check_width(self, config: ExperimentConfig) -> None:
        unit = architecture_of(config.model).slice_unit
        if config.width % unit:
            below = config.width // unit * unit
            near = f"width={below} or width={below + unit}" if below else f"width={unit}"
            raise ValueError(
                f"width={config.width} with preset.context: blocks of layer context need whole pixels on the UNet's "
                f"lowest level (a multiple of {unit}): use {near}"
            )

    def _check_cells(self, context: ContextConfig, config: ExperimentConfig) -> None:
        grid = grid_of(context, config)
        check_blocks(grid, architecture_of(config.model).lowest)
        if context.halos is Halos.chosen:
            split_budget(grid, budget_of(context, config))

    def comes_to(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> MethodConfig:
        """Where nothing that is sent would be read, the layers are silent and no more: `balanced`, as long as no codec
        is used, which there would reach the noise prediction."""
        elsewhere = super().comes_to(preset, config)
        if elsewhere is preset and not self._sends(preset, config) and config.codec.quantizer == "none":
            return SilentLayersConfig(name="balanced", gn_sync=preset.gn_sync)
        return elsewhere

    def normal_form(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> ContextBlocksConfig:
        return replace(
            preset, gn_sync=gn_sync_of(preset.gn_sync).value, context=normal_selection(preset.context, config)
        )

    def uses(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> frozenset[str]:
        used = frozenset({"groupnorm", "warmup_steps", "refresh", "k"})
        return used | {"codec"} if self._sends(preset, config) or codes_layers(config) else used

    def budget(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> int:
        return budget_of(preset.context, config)

    def obstacle(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> str | None:
        return "layer context is exchanged block by block between distrifuser's layers, which cannot be compiled whole"

    def _sends(self, preset: ContextBlocksConfig, config: ExperimentConfig) -> bool:
        """Whether anything that is sent after a step is read before a synchronous step renews all."""
        return preset.context.every + read_after(preset.context) <= _longest_silence(config)


def read_after(context: ContextConfig) -> int:
    """Steps from the one after which blocks are sent to the one that reads them."""
    return 2 if context.overlap is Overlap.step else 1


def _longest_silence(config: ExperimentConfig) -> int:
    """Most steps in a row that are not synchronous."""
    after_warmup = config.num_inference_steps - config.warmup_steps - 1
    period = config.refresh.period
    return after_warmup if not 0 < period <= after_warmup else period - 1


METHOD = ContextBlocks()
