"""AsyncDiff on real ranks: two steps old at two components, what crosses, and what it refuses."""

from __future__ import annotations

import functools

import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from torch import Tensor

from composing import Typed
from otil_exp.cells.rules import validate
from otil_exp.methods.asyncdiff.rules import components
from otil_exp.models.architecture import SDXL
from otil_exp.stages.cut import stage_flops
from otil_exp.stages.tape import tape
from otil_exp.stages.wiring import crossing_elements, wires
from pipelines import run_pipelines
from staged import SHORT, VASE, InParts, denoised, furthest, reference

UNITS = tape(SDXL.unet, 128, 128)
BYTES = 2 * 2
"""An element of both samples of the CFG batch in fp16."""


class TwoStepsLate(InParts):
    """async_sd.py in one process: in a step the inner part works on the last step's input, told this step."""

    def __init__(self, pipeline: StableDiffusionXLPipeline) -> None:
        super().__init__(pipeline)
        self.state, self.made = torch.empty(0), torch.empty(0)

    def predict(self, sample: Tensor) -> Tensor:
        told = self.told(self.step)
        state, *skips = self.down(*told, sample)
        if self.step <= 2:
            self.made = self.inner(*told, state)[0]
        prediction = self.up(*told, self.made, *skips)[0]
        if self.step > 2:
            self.made = self.inner(*told, self.state)[0]
        self.state = state
        return prediction


class RoundsOfTwo(TwoStepsLate):
    """Stride 2: on one latent the outer part is told both steps of a round, the inner part the second."""

    def predict(self, sample: Tensor) -> Tensor:
        if self.step <= 2:
            return super().predict(sample)
        if self.step % 2 == 0:
            return self.second
        made = self.made
        self.made = self.inner(*self.told(self.step + 1), self.state)[0]
        _, *skips = self.down(*self.told(self.step), sample)
        first = self.up(*self.told(self.step), made, *skips)[0]
        self.state, *skips = self.down(*self.told(self.step + 1), sample)
        self.second = self.up(*self.told(self.step + 1), made, *skips)[0]
        return first


@pytest.mark.ranks
def test_two_components(typed: Typed) -> None:
    cell = functools.partial(typed, "preset=asyncdiff", *SHORT, "topology=2gpu_nosplit")
    waiting, running = run_pipelines([cell("warmup_steps=6"), cell()], VASE)
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(running, denoised(TwoStepsLate)) < 1e-5
    assert furthest(running, reference()) > 1e-3


@pytest.mark.ranks
@pytest.mark.parametrize("scheduler", ["ddim", "euler"])
def test_rounds_of_two_steps_on_three_ranks(typed: Typed, scheduler: str) -> None:
    overrides = ("preset=asyncdiff", "preset.stride=2", *SHORT, f"scheduler={scheduler}", "topology=3gpu_nosplit")
    (running,) = run_pipelines([typed(*overrides)], VASE)
    assert furthest(running, denoised(RoundsOfTwo, scheduler)) < 1e-4


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [3, 4])
def test_more_components_wait_exactly(typed: Typed, ranks: int) -> None:
    cell = functools.partial(typed, "preset=asyncdiff", *SHORT, f"topology={ranks}gpu_nosplit")
    waiting, running = run_pipelines([cell("warmup_steps=6"), cell()], VASE)
    assert furthest(waiting, reference()) < 1e-5
    assert 1e-3 < furthest(running, reference()) < 5


@pytest.mark.parametrize(
    ("number", "megabytes", "shares"),
    [(2, 7.9, [43.7, 56.3]), (3, 36.7, [30.7, 34.8, 34.4]), (4, 70.8, [23.3, 29.0, 23.2, 24.4])],
)
def test_the_least_that_crosses_and_the_shares_of_work(number: int, megabytes: float, shares: list[float]) -> None:
    """At 1024 squared, worked out from the block layout: states, and skips that begin on another component."""
    segments = components(UNITS, number)
    sent = sum(crossing_elements(UNITS, segments, wire) for wire in wires(UNITS, segments))
    assert BYTES * sent / 1e6 == pytest.approx(megabytes, abs=0.05)
    flops = stage_flops(UNITS, segments)
    assert [round(100 * one / sum(flops), 1) for one in flops] == shares


def test_what_the_published_code_broadcasts() -> None:
    """All outputs of every hooked module, a down block's hidden state and its skips among them: 257.4 MB a step."""
    size = {unit.name: unit.elements for unit in UNITS}
    inner = 3 * size["down2.attn1"] + size["mid.res1"] + 4 * size["up0.attn1"]
    down0 = size["down0.down"] + size["down0.res0"] + size["down0.res1"] + size["down0.down"]
    down1 = size["down1.down"] + size["down1.attn0"] + size["down1.attn1"] + size["down1.down"]
    up0 = size["up0.res2"] + size["up0.attn2"] + size["up0.up"]
    outer = size["conv_in"] + down0 + down1 + up0 + size["up1.up"] + 2 * size["up2.res2"] + size["conv_out"]
    assert BYTES * inner / 1e6 == pytest.approx(42.0, abs=0.1)
    assert BYTES * outer / 1e6 == pytest.approx(215.2, abs=0.1)
    prediction = size["conv_out"]
    assert BYTES * (inner + outer + prediction) / 1e6 == pytest.approx(257.4, abs=0.1)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("preset.stride=3",), "preset.stride=3: use 1, or 2 with one more rank"),
        (("preset.stride=2",), "2 to 4 components take 3 to 5 ranks a half of the batch; use topology=3gpu_nosplit"),
        (
            ("topology=8gpu_nosplit",),
            "take 2 to 4 ranks a half of the batch; use topology=2gpu_nosplit, or topology=3gpu",
        ),
        (("topology=2gpu_split",), "use topology=4gpu_split, or topology=6gpu_split, or topology=8gpu_split"),
        (("topology=2gpu_split", "preset.stride=2"), "use topology=6gpu_split, or topology=8gpu_split"),
    ],
)
def test_what_contradicts_is_refused(typed: Typed, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        validate(typed("preset=asyncdiff", "topology=2gpu_nosplit", *overrides))
