"""The rehearsal of the exchange, and its judge."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from otil_exp.selftest import promises
from otil_exp.selftest.plan import State
from otil_exp.selftest.promises import BUDGET, CHECKS, COVERAGE, FINAL, K_SENT, OWN, REMOTE, exact_latent, judge
from ranks import run_ranks


def rehearse_on(rank: int, ranks: int) -> dict[str, str]:
    return promises.rehearse(rank, ranks, torch.device("cpu"))


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_exchange_keeps_its_promises(ranks: int) -> None:
    assert run_ranks(ranks, rehearse_on, ranks) == [{}] * ranks


def test_kept_promises_are_fine_and_a_broken_one_says_where() -> None:
    kept = promises.judge_promises({}, 4)
    assert kept.state is State.fine
    assert kept.figures == dict.fromkeys(CHECKS, "kept")
    broken = promises.judge_promises({REMOTE: "rank 1, step 3: block 4 of slice 0 is neither"}, 4)
    assert broken.state is State.broken
    assert f"{REMOTE}: rank 1, step 3" in broken.sentence
    assert [check for check, outcome in broken.figures.items() if outcome == "kept"] == [
        check for check in CHECKS if check != REMOTE
    ]


def right_step() -> tuple[Tensor, Tensor, Tensor]:
    """What rank 0 of 2 rightly knows after a step in which the first K_SENT blocks (4x4) of slice 1 arrived."""
    before, exact = exact_latent(0, 2), exact_latent(1, 2)
    now = before.clone()
    now[:, :, :16] = exact[:, :, :16]
    now[:, :, 16:20, : 4 * K_SENT] = exact[:, :, 16:20, : 4 * K_SENT]
    return now, before, exact


def test_the_judge_accepts_a_right_step_and_lists_what_arrived() -> None:
    assert judge(*right_step(), rank=0) == ({}, {(1, block) for block in range(K_SENT)})


@pytest.mark.parametrize(
    ("rows", "columns", "failed"),
    [
        (slice(0, 4), slice(0, 4), {OWN}),  # a stale block in the own slice
        (slice(16, 20), slice(0, 4), {BUDGET}),  # a received block lost
    ],
)
def test_the_judge_names_what_is_stale_but_should_not_be(rows: slice, columns: slice, failed: set[str]) -> None:
    now, before, exact = right_step()
    now[:, :, rows, columns] = before[:, :, rows, columns]
    assert set(judge(now, before, exact, rank=0)[0]) == failed


def test_the_judge_names_a_blend() -> None:
    now, before, exact = right_step()
    now[:, :, 28:32, 28:32] = (before + exact)[:, :, 28:32, 28:32] / 2
    assert set(judge(now, before, exact, rank=0)[0]) == {REMOTE}


class Forgetful:
    """An exchange of two ranks that sends the same blocks every step and gathers nothing."""

    def __init__(self, grid: Any, slice_index: int, slices: int, k: int) -> None:
        self.rank = slice_index

    def remember(self, latents: Tensor) -> None:
        self.known = latents.clone()
        self.step_index = 0

    def step(self, latents: Tensor) -> Tensor:
        self.step_index += 1
        exact = exact_latent(self.step_index, 2)
        own, other = (slice(0, 16), 16) if self.rank == 0 else (slice(16, 32), 0)
        self.known[:, :, own] = latents[:, :, own]
        self.known[:, :, other : other + 4, : 4 * K_SENT] = exact[:, :, other : other + 4, : 4 * K_SENT]
        return self.known.clone()

    def finalize(self, latents: Tensor) -> Tensor:
        return torch.zeros_like(latents)


def test_a_rehearsal_notices_missing_blocks_and_a_wrong_final_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "LatentExchange", Forgetful)
    failures = promises.rehearse(rank=1, ranks=2, device=torch.device("cpu"))
    assert failures == {
        COVERAGE: "rank 1, step 7: 27 remote blocks did not arrive in this round",
        FINAL: "rank 1: the gathered latent is not the exact one",
    }
