import pytest
from torch import multiprocessing as mp

import ranks
from ranks import run_ranks


def own_rank(rank):
    return rank


def break_down(rank):
    raise RuntimeError(f"rank {rank} broke down")


@pytest.mark.ranks
def test_results_come_in_rank_order():
    assert run_ranks(2, own_rank) == [0, 1]


@pytest.mark.ranks
def test_what_a_rank_raises_is_raised_with_its_traceback():
    with pytest.raises(mp.ProcessRaisedException, match="in break_down"):
        run_ranks(2, break_down)


@pytest.mark.parametrize(
    ("words", "lost", "tries"),
    [
        ("NotMetError: Connection closed", 2, 3),
        ("NotMetError: Connection closed", 3, 3),
        ("ValueError: no such k", 1, 1),
    ],
)
def test_only_a_meeting_that_gloo_lost_is_tried_again(monkeypatch, words, lost, tries):
    called = []

    def attempt(*args):
        called.append(args)
        if len(called) <= lost:
            raise mp.ProcessRaisedException(words, 0, 0)
        return ["met"]

    monkeypatch.setattr(ranks, "_run_ranks", attempt)
    if tries > lost:
        assert run_ranks(2, own_rank) == ["met"]
    else:
        with pytest.raises(mp.ProcessRaisedException):
            run_ranks(2, own_rank)
    assert len(called) == tries
