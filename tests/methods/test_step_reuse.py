"""ParaStep on real ranks: whose turn it is, what the others do, and how far the picture is from one process's."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from composing import Typed
from otil_exp.cells.rules import validate
from otil_exp.methods.step_reuse.step import turns
from otil_exp.schedule import schedule
from pipelines import run_pipelines
from staged import SHORT, VASE, InParts, denoised, furthest, reference


def test_turns_by_hand() -> None:
    """Warm-up to 1, a refresh at 6: rounds of three begin at 2 and 5 (cut short) and 7."""
    assert turns(schedule(10, 1, 5), 3) == (None, None, 0, 1, 2, 0, None, 0, 1, 2)


class TwoInTurn(InParts):
    """Two ranks in one process: the second one's latent went its first step with the last prediction.

    Steps 3 and 4, 5 and 6 are rounds. DDIM without noise: x' = a x + b eps, so a step with another prediction differs
    by b times the difference of what guidance makes of them.
    """

    def predict(self, sample: Tensor) -> Tensor:
        if self.step > 2 and self.step % 2 == 0:
            sample = self.ahead
        prediction = self.up(*self.told(self.step), *self._inner(sample))[0]
        if self.step > 2 and self.step % 2 == 1:
            self.ahead = self._stepped(sample, self.last)
        self.last = prediction
        return prediction

    def _inner(self, sample: Tensor) -> list[Tensor]:
        state, *skips = self.down(*self.told(self.step), sample)
        return [self.inner(*self.told(self.step), state)[0], *skips]

    def _stepped(self, sample: Tensor, prediction: Tensor) -> Tensor:
        """One DDIM step of both halves of the batch, which hold the same latent; by its formula."""
        uncond, text = prediction.double().chunk(2)
        noise = uncond + 5.0 * (text - uncond)
        now, after = self.scheduler.timesteps[self.step], self.scheduler.timesteps[self.step + 1]
        a, b = self.scheduler.alphas_cumprod[now].double(), self.scheduler.alphas_cumprod[after].double()
        clean = (sample[:1].double() - (1 - a).sqrt() * noise) / a.sqrt()
        return (b.sqrt() * clean + (1 - b).sqrt() * noise).float().repeat(2, 1, 1, 1)


@pytest.mark.ranks
def test_two_ranks_in_turn(typed: Typed) -> None:
    cell = functools.partial(typed, "preset=step_reuse", *SHORT, "topology=2gpu_nosplit")
    waiting, running, line = run_pipelines([cell("warmup_steps=6"), cell(), cell("preset.order=1")], VASE)
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(running, denoised(TwoInTurn)) < 1e-4
    assert furthest(running, reference()) > 1e-3
    assert furthest(line, reference()) > 1e-3
    assert all(torch.equal(result.latents, line[0].latents) for result in line)


@pytest.mark.ranks
def test_halves_of_the_batch_apart(typed: Typed) -> None:
    cell = functools.partial(typed, "preset=step_reuse", *SHORT)
    (split,) = run_pipelines([cell("topology=4gpu_split")], VASE)
    assert furthest(split, denoised(TwoInTurn)) < 1e-4


def test_an_order_that_does_not_exist(typed: Typed) -> None:
    with pytest.raises(ValueError, match=r"preset.order=2: use 0 \(as it is\) or 1 \(a line\)"):
        validate(typed("preset=step_reuse", "topology=2gpu_nosplit", "preset.order=2"))
