import math

import pytest
import torch

from otil_exp.exchange import Polling


def chosen(polling, scores, k):
    return set(polling.choose(torch.tensor(scores), k).tolist())


def test_unvisited_blocks_go_first_then_the_highest_score():
    polling = Polling(4)
    assert chosen(polling, [0.1, 0.9, 0.5, 0.3], 2) == {1, 2}
    assert chosen(polling, [0.1, 2.0, 2.0, 0.3], 2) == {3, 0}  # 1 and 2 wait, however much they changed


def test_the_round_starts_again_in_the_step_that_empties_it():
    polling = Polling(4)
    scores = [0.1, 0.9, 0.5, 0.3]
    assert [chosen(polling, scores, 2) for _ in range(4)] == [{1, 2}, {3, 0}, {1, 2}, {3, 0}]


def test_the_last_step_of_a_round_fills_up_with_the_best_visited_blocks():
    polling = Polling(5)
    scores = [0.4, 0.5, 0.3, 0.2, 0.1]
    assert [chosen(polling, scores, 2) for _ in range(4)] == [{1, 0}, {2, 3}, {4, 1}, {1, 0}]


@pytest.mark.parametrize(("count", "k", "steps"), [(10, 3, 4), (64, 16, 4), (7, 7, 1), (5, 4, 2), (3, 1, 3)])
def test_every_block_is_sent_within_a_round(count, k, steps):
    assert steps == math.ceil(count / k)
    generator = torch.Generator().manual_seed(count)
    polling = Polling(count)
    for _ in range(5):
        sent = [set(polling.choose(2 * torch.rand(count, generator=generator), k).tolist()) for _ in range(steps)]
        assert all(len(step) == k for step in sent)
        assert set.union(*sent) == set(range(count))


def test_without_polling_the_highest_scores_win_every_time():
    polling = Polling(4, enabled=False)
    assert [chosen(polling, [0.1, 0.9, 0.5, 0.3], 2) for _ in range(3)] == [{1, 2}] * 3


def test_a_restart_forgets_what_was_sent():
    polling = Polling(3)
    assert chosen(polling, [0.3, 0.2, 0.1], 1) == {0}
    polling.restart()
    assert chosen(polling, [0.3, 0.2, 0.1], 1) == {0}
