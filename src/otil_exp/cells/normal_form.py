"""What a config really runs: settings its method ignores normalised away, so that equal cells are one cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from otil_exp.choices import DeviceKind, Engine, Mode
from otil_exp.config import BenchmarkConfig, DeviceConfig, EngineConfig, ExperimentConfig, ModelConfig, TopologyConfig
from otil_exp.methods.geometry import topology_of
from otil_exp.methods.method import OPTIONAL
from otil_exp.methods.rooms import method_of
from otil_exp.models.files import SHIPPED

_UNSAID = ExperimentConfig()


def effective(config: ExperimentConfig) -> ExperimentConfig:
    """The config with everything its method ignores set to the schema's default.

    Two cells with equal effective configs make the same pictures in the same way. Expects a validated config whose
    device is resolved.
    """
    found = _normalised(config)
    again = method_of(found).comes_to(found.preset, found)  # a codec that nothing goes through is gone by now
    return found if again == found.preset else _normalised(replace(found, preset=again))


def _normalised(config: ExperimentConfig) -> ExperimentConfig:
    config = replace(config, preset=method_of(config).comes_to(config.preset, config))
    method, topology = method_of(config), topology_of(config)
    config = replace(config, topology=TopologyConfig(world_size=topology.world_size, split_batch=topology.split_batch))
    config = replace(config, preset=method.normal_form(config.preset, config))
    device = _effective_device(config.device, topology.world_size)
    return replace(
        config,
        **_used(config),
        model=_effective_model(config.model),
        device=device,
        engine=_effective_engine(config, device),
        benchmark=config.benchmark if config.mode is Mode.benchmark else BenchmarkConfig(),
    )


def _used(config: ExperimentConfig) -> dict[str, Any]:
    """The settings that only some methods use: as they are, in one spelling, or unsaid."""
    method = method_of(config)
    used = method.uses(config.preset, config)
    values = {name: getattr(config if name in used else _UNSAID, name) for name in OPTIONAL}
    if "k" in used:
        values["k"] = replace(config.k, budget=float(method.budget(config.preset, config)))
    if values["codec"].quantizer == "none":
        values["codec"] = _UNSAID.codec
    if not 0 < values["refresh"].period < config.num_inference_steps - config.warmup_steps:
        values["refresh"] = _UNSAID.refresh
    return values


def _effective_model(model: ModelConfig) -> ModelConfig:
    """What ships has one variant; the name, like the sizes that other settings began from, changes no picture."""
    return replace(model, variant=None, revision=None) if model.source in SHIPPED else model


def _effective_device(device: DeviceConfig, world_size: int) -> DeviceConfig:
    alone = device.kind is DeviceKind.shared_gpu and world_size == 1
    talks = device if world_size > 1 else replace(device, link_mbit=0.0, link_delay_ms=0.0)
    return replace(talks, kind=DeviceKind.cuda if alone else device.kind)


def _effective_engine(config: ExperimentConfig, device: DeviceConfig) -> EngineConfig:
    """The engine that the steps get, where a method's cannot be compiled, and whether the ranks decode together."""
    method, engine = method_of(config), config.engine
    name = engine.name
    exchanging = method.exchanges_in_layers(config.preset, config)
    if name is Engine.compiled and exchanging and method.obstacle(config.preset, config) is not None:
        name = Engine.cuda_graph if device.kind is DeviceKind.cuda else Engine.eager
    together = config.mode is Mode.generate and config.topology.world_size > 1
    return replace(engine, name=name, sliced_decode=engine.sliced_decode and together)
