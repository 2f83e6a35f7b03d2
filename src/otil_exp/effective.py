"""What a config really runs: settings a method ignores normalised away, so that equal cells are one cell."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from otil_exp.choices import DeviceKind, GroupNormKind, Mode, Parallelism, SyncMode, TensorLayers
from otil_exp.config import (
    BenchmarkConfig,
    CodecConfig,
    DeviceConfig,
    ExperimentConfig,
    KConfig,
    PresetConfig,
    RefreshConfig,
    TopologyConfig,
    TransmitConfig,
)
from otil_exp.exchange import BLIND, resolve_budget
from otil_exp.validate import REFERENCE_NAME, grid_of, topology_of, warms_up

Selection = TypeVar("Selection", bound=TransmitConfig)

REFERENCE = PresetConfig(name=REFERENCE_NAME, parallelism=Parallelism.none)
"""One process, whatever method was asked for on one rank."""

BATCH_SPLIT = PresetConfig(name="batch_split", parallelism=Parallelism.patch, sync_mode=SyncMode.full_sync)
"""One slice a CFG half: no method that cuts slices has anything to cut or to exchange but the noise prediction."""

NO_WARMUP = -1
"""warmup_steps of methods that have no warm-up: every step is steady."""


def effective(config: ExperimentConfig) -> ExperimentConfig:
    """The config with everything its method ignores set to one fixed value.

    Two cells with equal effective configs make the same pictures in the same way. Expects a validated config whose
    device is resolved.
    """
    topology = topology_of(config)
    preset = _effective_preset(config)
    sliced = preset.parallelism is Parallelism.patch and topology.slices > 1
    silent = sliced and preset.sync_mode is SyncMode.no_sync
    refreshes = silent and 0 < config.refresh.period < config.num_inference_steps - config.warmup_steps
    selects = preset.transmit is not None or preset.context is not None
    return replace(
        config,
        preset=preset,
        topology=TopologyConfig(world_size=topology.world_size, split_batch=topology.split_batch),
        warmup_steps=config.warmup_steps if warms_up(preset, topology) else NO_WARMUP,
        groupnorm=config.groupnorm if sliced else GroupNormKind.exact,
        refresh=RefreshConfig(period=config.refresh.period if refreshes else 0),
        k=KConfig(budget=resolve_budget(config.k.budget, grid_of(config, topology).count) if selects else 0),
        codec=config.codec if silent and preset.noise_gather else CodecConfig(),
        device=_effective_device(config.device, topology.world_size),
        engine=replace(config.engine, sliced_decode=config.engine.sliced_decode and _decodes_together(config)),
        benchmark=config.benchmark if config.mode is Mode.benchmark else BenchmarkConfig(),
    )


def is_reference(config: ExperimentConfig) -> bool:
    """Whether an effective config is the run that others are compared with."""
    return config.preset.name == REFERENCE_NAME


def _effective_preset(config: ExperimentConfig) -> PresetConfig:
    topology, preset = topology_of(config), config.preset
    if topology.world_size == 1:
        return REFERENCE
    if topology.slices == 1 and preset.parallelism is not Parallelism.tensor:
        return BATCH_SPLIT
    preset = replace(
        preset,
        cfg_repair=preset.cfg_repair and topology.split_batch,
        transmit=_effective_selection(preset.transmit, config),
        context=_effective_selection(preset.context, config),
    )
    return _effective_stale(preset, topology.slices)


def _effective_selection(selection: Selection | None, config: ExperimentConfig) -> Selection | None:
    """Where all blocks are sent it does not matter how they score; a score that looks at no block compares nothing."""
    if selection is None:
        return None
    blocks = grid_of(config, topology_of(config)).count
    if resolve_budget(config.k.budget, blocks) == blocks:
        return _with_defaults(selection, "score", "against", "polling", "score_on")
    return _with_defaults(selection, "against", "score_on") if selection.score in BLIND else selection


def _with_defaults(selection: Selection, *names: str) -> Selection:
    """The defaults of these settings, where there are such settings."""
    defaults: dict[str, Any] = {one.name: one.default for one in fields(selection) if one.name in names}
    return replace(selection, **defaults)


def _effective_stale(preset: PresetConfig, slices: int) -> PresetConfig:
    """Layers in one order; none, or nobody to add up with, is tensor parallelism that waits."""
    layers = [layers for layers in TensorLayers if layers in preset.stale_layers]
    if preset.stale is None or not layers or slices == 1:
        return replace(preset, stale=None, stale_layers=[])
    return replace(preset, stale_layers=layers)


def _decodes_together(config: ExperimentConfig) -> bool:
    """Whether there are pictures to decode, and ranks to share the work."""
    return config.mode is Mode.generate and topology_of(config).world_size > 1


def _effective_device(device: DeviceConfig, world_size: int) -> DeviceConfig:
    alone = device.kind is DeviceKind.shared_gpu and world_size == 1
    return replace(device, kind=DeviceKind.cuda if alone else device.kind)
