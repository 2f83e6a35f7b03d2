"""Predictions of a few steps of one picture: of a method on a rank, as a run builds it, and of plain diffusers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UNet2DConditionModel

from emulated_graph import emulated_graphs
from otil_exp.cells.normal_form import effective
from otil_exp.choices import DeviceKind, Engine, GroupNormKind
from otil_exp.config import (
    CodecConfig,
    DeviceConfig,
    EngineConfig,
    ExperimentConfig,
    KConfig,
    MethodConfig,
    ModelConfig,
    RefreshConfig,
    TopologyConfig,
)
from otil_exp.methods.exchanging_layers.config import ExchangingLayersConfig, SyncMode
from otil_exp.methods.geometry import steps_of
from otil_exp.methods.rooms import step_of
from otil_exp.methods.selection import SelectionConfig
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.methods.tensor.config import TensorConfig
from otil_exp.models.architecture import ARCHITECTURES, Architecture
from otil_exp.rank_unet.engine import CudaGraphs
from otil_exp.rank_unet.on_rank import OnRank
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter
from tiny_sdxl import tiny_inputs, tiny_unet

TIMESTEPS = [981.0, 961.0, 941.0, 920.9, 901.0]
WARMUP = 1
"""Two synchronous steps, then three."""

MODES = [*SyncMode, "no_sync"]
"""What the layers of a slice exchange after warm-up, in distrifuser's words."""

FULL_SYNC = ExchangingLayersConfig(name="full_sync", sync_mode=SyncMode.full_sync)
TENSOR = TensorConfig(name="tensor")
UNGATHERED = SilentLayersConfig(name="guide", noise_gather=False, transmit=SelectionConfig(block_size=2))
"""Its blocks of the latent play no part in a prediction."""

ARCHITECTURES["tiny"] = lambda _: Architecture(
    unet={"block_out_channels": (16, 32), "norm_num_groups": 4}, vae={"block_out_channels": (8, 8, 16, 16)}
)


def layers_in(mode: str) -> MethodConfig:
    """The method whose layers exchange what a mode says, and whose noise prediction is gathered."""
    if mode == "no_sync":
        return SilentLayersConfig(name="balanced")
    return ExchangingLayersConfig(name="distrifusion", sync_mode=SyncMode(mode))


def step_inputs(inputs: dict[str, Any], step: int) -> dict[str, Any]:
    """The inputs of a step: the latent moves a little each time."""
    return inputs | {"sample": inputs["sample"] * (1 - 0.1 * step)}


@torch.no_grad()
def plain(unet: UNet2DConditionModel | None = None, inputs: dict[str, Any] | None = None) -> list[torch.Tensor]:
    """What one process predicts."""
    unet, inputs = unet or tiny_unet(), inputs or tiny_inputs()
    return [unet(timestep=t, **step_inputs(inputs, i), return_dict=False)[0] for i, t in enumerate(TIMESTEPS)]


def plain_by_halves() -> list[torch.Tensor]:
    """What one process predicts for one guidance half after the other: a batch of 1 rounds differently."""

    def half(index: int) -> dict[str, Any]:
        own, inputs = slice(index, index + 1), tiny_inputs()
        added = {name: tensor[own] for name, tensor in inputs.pop("added_cond_kwargs").items()}
        return {name: tensor[own] for name, tensor in inputs.items()} | {"added_cond_kwargs": added}

    return [torch.cat(pair) for pair in zip(plain(inputs=half(0)), plain(inputs=half(1)), strict=True)]


def cell(
    preset: MethodConfig,
    ranks: RankContext,
    inputs: dict[str, Any],
    *,
    steps: int = len(TIMESTEPS),
    warmup_steps: int = WARMUP,
    refresh_period: int = 0,
    refresh: RefreshConfig | None = None,
    k: float = 1,
    codec: CodecConfig | None = None,
    groupnorm: GroupNormKind = GroupNormKind.exact,
    engine: Engine = Engine.eager,
) -> ExperimentConfig:
    """The effective config of a method on a topology, of the inputs' size."""
    batch, _, rows, columns = inputs["sample"].shape
    topology, on_gpu = ranks.topology, ranks.device.type == "cuda"
    return effective(
        ExperimentConfig(
            name="test",
            preset=preset,
            topology=TopologyConfig(world_size=topology.world_size, split_batch=topology.split_batch),
            model=ModelConfig(name="tiny", architecture="tiny", source="random"),
            height=8 * rows,
            width=8 * columns,
            guidance_scale=5.0 if batch == 2 else 1.0,
            num_inference_steps=steps,
            warmup_steps=warmup_steps,
            refresh=refresh or RefreshConfig(period=refresh_period),
            k=KConfig(budget=k),
            codec=codec or CodecConfig(),
            groupnorm=groupnorm,
            engine=EngineConfig(name=engine),
            device=DeviceConfig(kind=DeviceKind.cuda if on_gpu else DeviceKind.cpu),
        )
    )


@dataclass(frozen=True)
class Prepared:
    """A UNet ready to run."""

    unet: RankUNet
    method: OnRank
    steps: tuple[Step, ...]
    inputs: dict[str, Any]
    traffic: TrafficCounter

    @torch.no_grad()
    def picture(self) -> Iterator[torch.Tensor]:
        """The prediction of each step."""
        self.unet.begin(self.steps)
        for i, t in enumerate(TIMESTEPS[: len(self.steps)]):
            yield self.unet(timestep=torch.tensor(t), **step_inputs(self.inputs, i), return_dict=False)[0]
        self.unet.finish()

    def counted(self) -> tuple[list[torch.Tensor], list[Traffic]]:
        """The prediction of each step of a picture, and what this rank sends in it."""
        with self.traffic.installed():
            self.traffic.take()
            predictions, sent = zip(*((one, self.traffic.take()) for one in self.picture()), strict=True)
        return list(predictions), list(sent)


def pictures(ranks: RankContext, preset: MethodConfig, *, count: int = 1, **settings: Any) -> list[list[torch.Tensor]]:
    """The predictions of each step of `count` equal pictures; settings are those of `prepared`."""
    with prepared(ranks, preset, **settings) as ready:
        return [list(ready.picture()) for _ in range(count)]


def picture(ranks: RankContext, preset: MethodConfig, **settings: Any) -> list[torch.Tensor]:
    """The predictions of one picture."""
    return pictures(ranks, preset, **settings)[0]


def counted(ranks: RankContext, preset: MethodConfig, **settings: Any) -> tuple[list[torch.Tensor], list[Traffic]]:
    """The predictions of one picture, and what this rank sends in each step."""
    with prepared(ranks, preset, **settings) as ready:
        return ready.counted()


def traffic(ranks: RankContext, preset: MethodConfig, **settings: Any) -> list[Traffic]:
    """What this rank sends in each step of a picture."""
    return counted(ranks, preset, **settings)[1]


@contextmanager
def prepared(
    ranks: RankContext,
    preset: MethodConfig,
    *,
    unet: UNet2DConditionModel | None = None,
    inputs: dict[str, Any] | None = None,
    graphs: bool = False,
    **settings: Any,
) -> Iterator[Prepared]:
    """Settings are those of `cell`. graphs: through emulated CUDA graphs."""
    inputs, counter = inputs or tiny_inputs(), TrafficCounter()
    config = cell(preset, ranks, inputs, **settings)
    method = step_of(config).build(config, ranks, unet or tiny_unet(), counter)
    built = RankUNet(method, tuple(inputs["sample"].shape))
    if graphs:
        method.engine = CudaGraphs(counter, emulated_graphs(counter))
    built.prepare(timestep=0, **inputs)
    yield Prepared(built, method, steps_of(config), inputs, counter)
    built.close()
