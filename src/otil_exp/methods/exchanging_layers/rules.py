"""Layers that exchange everything, at once or a step late."""

from __future__ import annotations

from dataclasses import replace

from otil_exp.config import ExperimentConfig
from otil_exp.methods.codec_scope import codes_layers
from otil_exp.methods.exchanging_layers.config import ExchangingLayersConfig, SyncMode
from otil_exp.methods.forecast_rules import check_order
from otil_exp.methods.patch import PatchMethod


class ExchangingLayers(PatchMethod[ExchangingLayersConfig]):
    """In full_sync every step is like the first."""

    def check(self, preset: ExchangingLayersConfig, config: ExperimentConfig) -> None:
        check_order(preset.order)

    def normal_form(self, preset: ExchangingLayersConfig, config: ExperimentConfig) -> ExchangingLayersConfig:
        return replace(preset, order=0) if preset.sync_mode is SyncMode.full_sync else preset

    def uses(self, preset: ExchangingLayersConfig, config: ExperimentConfig) -> frozenset[str]:
        waits = preset.sync_mode is SyncMode.full_sync
        used = frozenset({"groupnorm"}) if waits else frozenset({"groupnorm", "warmup_steps"})
        return used | {"codec"} if codes_layers(config) else used

    def obstacle(self, preset: ExchangingLayersConfig, config: ExperimentConfig) -> str | None:
        if preset.sync_mode is not SyncMode.full_sync:
            mode = preset.sync_mode.name
            return f"sync_mode={mode} sends while layers compute, which a compiled graph cannot hold"
        return super().obstacle(preset, config)


METHOD = ExchangingLayers()
