"""Layers that exchange nothing after warm-up: what is left to send is the noise prediction, or blocks of the latent."""

from __future__ import annotations

from dataclasses import replace

from otil_exp.config import ExperimentConfig
from otil_exp.methods.codec_scope import codes_layers
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.methods.patch import PatchMethod
from otil_exp.methods.selection_rules import budget_of, check_selection, normal_selection
from otil_exp.methods.silent_layers.config import SilentLayersConfig


class SilentLayers(PatchMethod[SilentLayersConfig]):
    """guide, otil, balanced."""

    rolls = True

    def check(self, preset: SilentLayersConfig, config: ExperimentConfig) -> None:
        gn_sync_of(preset.gn_sync)
        if preset.noise_gather and preset.transmit is not None:
            raise ValueError(
                "preset.transmit with preset.noise_gather=true: nothing is left to select when all is gathered; "
                "use preset.noise_gather=false or preset=balanced"
            )
        if not preset.noise_gather and preset.transmit is None:
            raise ValueError(
                "preset.noise_gather=false without preset.transmit: nothing would ever reach the other ranks; use "
                "preset=guide or preset.noise_gather=true"
            )
        if preset.cfg_repair and preset.noise_gather:
            raise ValueError(
                "preset.cfg_repair=true with preset.noise_gather=true: the gather brings both halves already; use "
                "preset.cfg_repair=false"
            )
        if self._ends_apart(preset, config) and config.engine.sliced_decode:
            raise ValueError(
                "engine.sliced_decode=true with preset.cfg_repair=false: without the repair the two halves of the "
                "ranks end with different latents, which cannot be decoded into one picture; use "
                "preset.cfg_repair=true or engine.sliced_decode=false"
            )
        if preset.transmit is not None:
            check_selection("preset.transmit", preset.transmit, config)
        super().check(preset, config)

    def _ends_apart(self, preset: SilentLayersConfig, config: ExperimentConfig) -> bool:
        topology = self.topology(preset, config)
        return topology.slices > 1 and topology.split_batch and not (preset.noise_gather or preset.cfg_repair)

    def normal_form(self, preset: SilentLayersConfig, config: ExperimentConfig) -> SilentLayersConfig:
        return replace(
            preset,
            cfg_repair=preset.cfg_repair and self.topology(preset, config).split_batch,
            gn_sync=gn_sync_of(preset.gn_sync).value,
            transmit=preset.transmit and normal_selection(preset.transmit, config),
        )

    def uses(self, preset: SilentLayersConfig, config: ExperimentConfig) -> frozenset[str]:
        used = frozenset({"groupnorm", "warmup_steps", "refresh"})
        used = used if preset.noise_gather else used | {"k"}
        return used | {"codec"} if preset.noise_gather or codes_layers(config) else used

    def obstacle(self, preset: SilentLayersConfig, config: ExperimentConfig) -> str | None:
        if config.refresh.rolling and config.refresh.period:
            return "refresh.rolling=true sends while layers compute, which a compiled graph cannot hold"
        return super().obstacle(preset, config)

    def finalizes(self, preset: SilentLayersConfig) -> bool:
        return preset.transmit is not None

    def budget(self, preset: SilentLayersConfig, config: ExperimentConfig) -> int:
        assert preset.transmit is not None, "who does not select does not use k"
        return budget_of(preset.transmit, config)


METHOD = SilentLayers()
