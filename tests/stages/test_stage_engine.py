"""Segments called, compiled and replayed give the same; a stand-in plays the CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from emulated_graph import emulated_graphs
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.stages.engine import SegmentEngine
from otil_exp.stages.parts import SegmentCall
from otil_exp.stages.tape import tape
from otil_exp.traffic import TrafficCounter
from tiny_sdxl import tiny_inputs, tiny_unet


def told_and_sample(seed: int) -> list[torch.Tensor]:
    inputs = tiny_inputs(seed=seed)
    added = inputs["added_cond_kwargs"]
    timestep = torch.full((2,), 100.0 + seed)
    return [timestep, inputs["encoder_hidden_states"], added["text_embeds"], added["time_ids"], inputs["sample"]]


def compiled(segment: SegmentCall, *inputs: torch.Tensor) -> Any:
    return torch.compile(segment, fullgraph=True, dynamic=False, backend="eager")


@pytest.mark.parametrize("kind", ["compiled", "recorded"])
@torch.no_grad()
def test_down_and_up_as_when_they_are_called(kind: str) -> None:
    """Three steps on other inputs; the way up reads the skips where the way down left them."""
    unet = tiny_unet()
    units = tape(unet.config, 16, 16)
    down, _, up = fold(units, named_cuts(units, ["down0.down/up0.attn0"]))
    calls = {0: SegmentCall(unet, units, down), 2: SegmentCall(unet, units, up)}
    engine = SegmentEngine(
        calls,
        compiles=compiled if kind == "compiled" else None,
        record=emulated_graphs(TrafficCounter()) if kind == "recorded" else None,
    )
    *told, sample = told_and_sample(0)
    state, *skips = engine.prepare(0, [*told, sample])
    engine.prepare(2, [*told, torch.zeros(2, 32, 8, 8), *skips])
    for seed in (1, 2, 3):
        *told, sample = told_and_sample(seed)
        inner = torch.randn(2, 32, 8, 8)
        state, *skips = engine.run(0, [*told, sample])
        expected_state, *expected_skips = calls[0](*told, sample)
        assert torch.equal(state, expected_state)
        (prediction,) = engine.run(2, [*told, inner, *skips])
        assert torch.equal(prediction, calls[2](*told, inner, *expected_skips)[0])
    engine.close()
