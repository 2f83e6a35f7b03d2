import subprocess
import sys

import pytest
import torch

from otil_exp import selftest
from otil_exp.selftest import BUDGET, COVERAGE, FINAL, K_SENT, OWN, RAN, REMOTE, exact_latent, judge, main, run_checks


@pytest.mark.ranks
def test_all_checks_pass_with_two_and_four_ranks(capsys):
    assert main([]) == 0
    output = capsys.readouterr().out
    assert "2 ranks" in output
    assert "4 ranks" in output
    assert output.count("pass") == 12
    assert "FAIL" not in output


@pytest.mark.ranks
def test_ranks_that_do_not_finish_are_ended_and_named(capsys):
    assert main(["--ranks", "2", "--timeout", "0.01"]) == 1
    output = capsys.readouterr().out
    assert f"FAILED with 2 ranks: {RAN}: they had not finished after 0.01 s" in output
    assert "pass" not in output


def crash(rank, *args):
    raise FloatingPointError(f"rank {rank} is out of order")


@pytest.mark.ranks
def test_a_rank_that_raises_fails_with_its_traceback(monkeypatch):
    monkeypatch.setattr(selftest, "_run_rank", crash)
    assert "is out of order" in run_checks(2, timeout=30)[RAN]


def test_a_failed_check_is_named_and_sets_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "run_checks", lambda ranks, timeout: {REMOTE: "rank 1"} if ranks == 4 else {})
    assert main([]) == 1
    output = capsys.readouterr().out
    assert f"FAILED with 4 ranks: {REMOTE}: rank 1" in output
    assert output.count("pass") == 11


@pytest.mark.parametrize(("argument", "sentence"), [("--ranks=1", "at least 2 ranks"), ("--timeout=0", "positive")])
def test_impossible_arguments_are_refused(argument, sentence, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([argument])
    assert exit_.value.code == 2
    assert sentence in capsys.readouterr().err


def right_step():
    """What rank 0 of 2 rightly knows after a step in which the first K_SENT blocks (4x4) of slice 1 arrived."""
    before, exact = exact_latent(0, 2), exact_latent(1, 2)
    now = before.clone()
    now[:, :, :16] = exact[:, :, :16]
    now[:, :, 16:20, : 4 * K_SENT] = exact[:, :, 16:20, : 4 * K_SENT]
    return now, before, exact


def test_the_judge_accepts_a_right_step_and_lists_what_arrived():
    assert judge(*right_step(), rank=0) == ({}, {(1, block) for block in range(K_SENT)})


@pytest.mark.parametrize(
    ("rows", "columns", "failed"),
    [
        (slice(0, 4), slice(0, 4), {OWN}),  # a stale block in the own slice
        (slice(16, 20), slice(0, 4), {BUDGET}),  # a received block lost
    ],
)
def test_the_judge_names_what_is_stale_but_should_not_be(rows, columns, failed):
    now, before, exact = right_step()
    now[:, :, rows, columns] = before[:, :, rows, columns]
    assert set(judge(now, before, exact, rank=0)[0]) == failed


def test_the_judge_names_a_blend():
    now, before, exact = right_step()
    now[:, :, 28:32, 28:32] = (before + exact)[:, :, 28:32, 28:32] / 2
    assert set(judge(now, before, exact, rank=0)[0]) == {REMOTE}


class Forgetful:
    """An exchange of two ranks that sends the same blocks every step and gathers nothing."""

    def __init__(self, grid, slice_index, slices, k):
        self.rank = slice_index

    def remember(self, latents):
        self.known = latents.clone()
        self.step_index = 0

    def step(self, latents):
        self.step_index += 1
        exact = exact_latent(self.step_index, 2)
        own, other = (slice(0, 16), 16) if self.rank == 0 else (slice(16, 32), 0)
        self.known[:, :, own] = latents[:, :, own]
        self.known[:, :, other : other + 4, : 4 * K_SENT] = exact[:, :, other : other + 4, : 4 * K_SENT]
        return self.known.clone()

    def finalize(self, latents):
        return torch.zeros_like(latents)


def test_a_rehearsal_notices_missing_blocks_and_a_wrong_final_gather(monkeypatch):
    monkeypatch.setattr(selftest, "LatentExchange", Forgetful)
    failures = selftest.rehearse(rank=1, ranks=2)
    assert failures == {
        COVERAGE: "rank 1, step 7: 27 remote blocks did not arrive in this round",
        FINAL: "rank 1: the gathered latent is not the exact one",
    }


def test_it_starts_without_diffusers_or_hydra():
    heavy = "{'diffusers', 'transformers', 'distrifuser', 'hydra'}"
    code = f"import sys, otil_exp.selftest; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)
