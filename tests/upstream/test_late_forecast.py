"""Layers that read a forecast of late context: exact where it moves along a line, and what whole methods make of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers.models.attention import Attention
from torch import Tensor, nn
from torch import distributed as dist

from otil_exp.choices import GroupNormKind, StaleSums, TensorLayers
from otil_exp.methods.context_blocks.config import ContextBlocksConfig, ContextConfig
from otil_exp.methods.exchanging_layers.config import ExchangingLayersConfig, SyncMode
from otil_exp.methods.tensor.config import TensorConfig
from otil_exp.upstream.forecast import ContextForecast
from otil_exp.upstream.imports import DistriConv2dPP, DistriSelfAttentionPP, PatchParallelismCommManager
from otil_exp.upstream.patches import applied
from places import place
from ranks import run_ranks
from trajectories import WARMUP, counted, picture, prepared

pytestmark = pytest.mark.ranks

LATE = ExchangingLayersConfig(name="distrifusion", sync_mode=SyncMode.corrected_async_gn)
SEPARATE = ExchangingLayersConfig(name="distrifusion", sync_mode=SyncMode.separate_gn)
BLOCKS = ContextBlocksConfig(name="otil_context", context=ContextConfig(block_size=2))
SUMS = TensorConfig(name="tensor_stale", stale=StaleSums.peers, stale_layers=list(TensorLayers))
METHODS = {"distrifusion": (LATE, {}), "otil_context": (BLOCKS, {"k": 8}), "tensor_stale": (SUMS, {})}
"""By name: settings of the preset, and of the cell."""


def line(preset: Any) -> Any:
    return replace(preset, order=1)


def one_layer(rank: int, kind: str, ahead: float, bend: float) -> list[float]:
    """How far a layer of a slice is from the layer on the whole picture, in steps 0 to 5, of which two are warm-up.

    The picture is a + b t + bend * t * t.
    """
    torch.manual_seed(0)
    config = SimpleNamespace(
        **{"n_device_per_batch": 2, "mode": "separate_gn", "warmup_steps": 1, "batch_group": dist.group.WORLD},
        **{"split_idx": lambda: rank, "device": "cpu", "comm_checkpoint": 60, "rank": rank, "verbose": False},
    )
    whole: Any = nn.Conv2d(3, 3, 3, padding=1) if kind == "conv" else Attention(8, heads=2, dim_head=4)
    layer = DistriConv2dPP(whole, config) if kind == "conv" else DistriSelfAttentionPP(whole, config)
    shape, dim = ((2, 3, 8, 4), 2) if kind == "conv" else ((2, 32, 8), 1)
    a, b = torch.randn(shape), torch.randn(shape)
    manager = PatchParallelismCommManager(config)
    layer.set_comm_manager(manager)
    with torch.no_grad(), applied("peft_flag", "comm_queue"):
        layer(a.chunk(2, dim)[rank])
        manager.create_buffer()
        ContextForecast(manager, torch.tensor(ahead)).attach(layer)
        layer.set_counter(0)
        off = []
        for t in range(6):
            now = a + b * t + bend * t * t
            off.append(_off(layer(now.chunk(2, dim)[rank]), whole(now).chunk(2, dim)[rank]))
        manager.clear()
    return off


def _off(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()


@pytest.mark.parametrize("kind", ["conv", "attention"])
def test_context_that_moves_along_a_line_is_forecast_exactly(kind: str) -> None:
    for off in run_ranks(2, one_layer, kind, 1.0, 0.0):
        assert max(off) < 1e-4
    for as_it_is in run_ranks(2, one_layer, kind, 0.0, 0.0):
        assert max(as_it_is[:2]) < 1e-4 < 1e-2 < min(as_it_is[2:])


def test_a_bend_leaves_twice_its_size_whatever_the_step() -> None:
    """t * t is forecast as 2 (t - 1)^2 - (t - 2)^2 = t * t - 2; a step late it would be off by 2 t - 1, which grows."""
    for off in run_ranks(2, one_layer, "conv", 1.0, 1.0):
        assert max(off[:2]) < 1e-4
        assert min(off[2:]) > 1e-2
        assert max(off[2:]) - min(off[2:]) < 1e-3


def work(rank: int) -> dict[str, Any]:
    ranks = place(rank, split_batch=False)
    upstream = {"groupnorm": GroupNormKind.upstream}
    made: dict[str, Any] = {
        "all blocks": picture(ranks, line(BLOCKS), **upstream, k=32),
        "no blocks": picture(ranks, line(SEPARATE), **upstream),
        "one value known": [picture(ranks, preset, warmup_steps=0) for preset in (LATE, line(LATE))],
    }
    for name, (preset, settings) in METHODS.items():
        made[name], without = counted(ranks, preset, **settings)
        with prepared(ranks, line(preset), **settings) as ready:
            first, forecast = ready.counted()
            made[f"{name} line"] = [first, list(ready.picture())]
        made[f"{name} replayed"] = picture(ranks, line(preset), **settings, graphs=True)
        made[f"{name} traffic"] = [without, forecast]
    return made


@pytest.fixture(scope="module")
def made() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_ranks(2, work, timeout=180)
    return found


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_warm_up_is_as_without_and_later_steps_are_not(made: list[dict[str, Any]], name: str) -> None:
    for rank in made:
        differences = [_off(a, b) for a, b in zip(rank[f"{name} line"][0], rank[name], strict=True)]
        assert max(differences[: WARMUP + 1]) == 0
        assert min(differences[WARMUP + 1 :]) > 0


@pytest.mark.parametrize("name", METHODS)
def test_pictures_repeat_and_graphs_give_what_calls_give(made: list[dict[str, Any]], name: str) -> None:
    for rank in made:
        first, second = rank[f"{name} line"]
        assert same(first, second)
        assert same(first, rank[f"{name} replayed"])


@pytest.mark.parametrize("name", METHODS)
def test_a_forecast_sends_nothing(made: list[dict[str, Any]], name: str) -> None:
    without, line = made[0][f"{name} traffic"]
    assert without == line


def test_all_blocks_are_layers_that_exchange_everything_bit_for_bit(made: list[dict[str, Any]]) -> None:
    for rank in made:
        assert same(rank["all blocks"], rank["no blocks"])


def test_through_one_value_leads_no_line(made: list[dict[str, Any]]) -> None:
    for rank in made:
        without, line = rank["one value known"]
        assert same(without[:2], line[:2])
        assert not same(without[2:3], line[2:3])
