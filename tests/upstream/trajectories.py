"""Predictions of a few steps of one picture: of our UNet, and of plain diffusers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UNet2DConditionModel

from emulated_graph import emulated_graphs
from otil_exp.choices import Parallelism
from otil_exp.exchange import Step, repair_pair, step_kinds
from otil_exp.rank_unet.engine import CudaGraphs
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter
from otil_exp.upstream import RankUNet, build_unet
from tiny_sdxl import tiny_inputs, tiny_unet

TIMESTEPS = [981.0, 961.0, 941.0, 920.9, 901.0]
WARMUP = 1
"""Two synchronous steps, then three."""


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


@dataclass(frozen=True)
class Prepared:
    """A UNet ready to run."""

    unet: RankUNet
    steps: tuple[Step, ...]
    inputs: dict[str, Any]
    traffic: TrafficCounter

    @torch.no_grad()
    def picture(self) -> Iterator[torch.Tensor]:
        """The prediction of each step."""
        self.unet.begin(self.steps)
        for i, t in enumerate(TIMESTEPS):
            yield self.unet(timestep=torch.tensor(t), **step_inputs(self.inputs, i), return_dict=False)[0]
        self.unet.finish()


def pictures(ranks: RankContext, *, count: int = 1, **settings: Any) -> list[list[torch.Tensor]]:
    """The predictions of each step of `count` equal pictures; settings are those of `prepared`."""
    with prepared(ranks, **settings) as ready:
        return [list(ready.picture()) for _ in range(count)]


def patch_picture(ranks: RankContext, **settings: Any) -> list[torch.Tensor]:
    """The predictions of one picture of a patch method."""
    return pictures(ranks, parallelism=Parallelism.patch, **settings)[0]


def patch_traffic(ranks: RankContext, **settings: Any) -> list[Traffic]:
    """What this rank sends in each step of a picture of a patch method."""
    with prepared(ranks, parallelism=Parallelism.patch, **settings) as ready, ready.traffic.installed():
        ready.traffic.take()
        return [ready.traffic.take() for _ in ready.picture()]


@contextmanager
def prepared(
    ranks: RankContext,
    *,
    unet: UNet2DConditionModel | None = None,
    inputs: dict[str, Any] | None = None,
    graphs: bool = False,
    warmup_steps: int = WARMUP,
    refresh_period: int = 0,
    **settings: Any,
) -> Iterator[Prepared]:
    """Settings are build_unet's. graphs: through emulated CUDA graphs."""
    inputs, traffic = inputs or tiny_inputs(), TrafficCounter()
    batch, _, rows, columns = inputs["sample"].shape
    shape = {"height": 8 * rows, "width": 8 * columns, "guidance": batch == 2, "warmup_steps": warmup_steps}
    built = build_unet(unet or tiny_unet(), ranks, **shape, **settings, traffic=traffic, repair=repair_pair)
    if graphs:
        built.engine = CudaGraphs(traffic, emulated_graphs(traffic))
    built.prepare(timestep=0, **inputs)
    yield Prepared(built, step_kinds(len(TIMESTEPS), warmup_steps, refresh_period), inputs, traffic)
    built.close()
