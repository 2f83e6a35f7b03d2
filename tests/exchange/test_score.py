import math

import pytest
import torch

from otil_exp.exchange import SCORES, Polling, cosine_dissimilarity


def blocks(*vectors, dtype=torch.float32):
    """Each two-vector becomes a block of two channels and one pixel."""
    return torch.tensor(vectors, dtype=dtype).view(-1, 2, 1, 1)


def test_the_score_is_one_minus_the_cosine_of_the_turn():
    before = blocks((1, 0), (1, 0), (1, 0), (1, 0))
    now = blocks((3, 0), (1, math.sqrt(3)), (0, 2), (-5, 0))  # turned by 0, 60, 90, 180 degrees; lengths do not matter
    torch.testing.assert_close(cosine_dissimilarity(now, before), torch.tensor([0.0, 0.5, 1.0, 2.0]))


def test_a_zero_block_scores_zero():
    assert cosine_dissimilarity(blocks((0, 0), (1, 2), (0, 0)), blocks((1, 2), (0, 0), (0, 0))).tolist() == [0, 0, 0]


def test_large_fp16_values_are_scored_in_float32():
    before = blocks((60000, 0), (60000, 60000), dtype=torch.float16)  # squares are far beyond fp16's 65504
    now = blocks((0, 60000), (60000, 60000), dtype=torch.float16)
    scores = cosine_dissimilarity(now, before)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, torch.tensor([1.0, 0.0]))


def test_a_product_of_norms_beyond_float32_scores_zero_though_the_dot_product_is_not():
    assert cosine_dissimilarity(blocks((1e30, 0), (1e15, 0)), blocks((0, 1e30), (0, 1e15))).tolist() == [0, 1]


@pytest.mark.parametrize("value", [1e30, 1e-30, math.inf, math.nan])
def test_values_beyond_float32s_squares_never_give_nan(value):
    assert cosine_dissimilarity(blocks((value, value)), blocks((value, 1))).tolist() == [0]


def test_the_score_stays_within_zero_and_two():
    now = torch.randn(1000, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    for before in (now, -now, now * 3):
        scores = cosine_dissimilarity(now, before)
        assert ((scores >= 0) & (scores <= 2)).all()


def test_scores_go_by_the_name_a_user_types():
    assert SCORES["cosine"].make() is cosine_dissimilarity


def test_l2_is_the_distance_as_a_share_of_the_largest():
    scores = SCORES["l2"].make()(blocks((3, 4), (0, 0), (1, 1)), blocks((0, 0), (0, 10), (1, 1)))
    torch.testing.assert_close(scores, torch.tensor([0.5, 1.0, 0.0]))


def test_l2_of_what_did_not_move_or_is_not_finite_is_a_number():
    still = blocks((1, 2), (3, 4))
    assert SCORES["l2"].make()(still, still).tolist() == [0, 0]
    assert SCORES["l2"].make()(blocks((math.nan, 0), (math.inf, 0)), still).tolist() == [0, 1]


def test_round_robin_takes_blocks_in_turn():
    now = torch.zeros(5, 1, 1, 1)
    rounds, score = Polling(5), SCORES["round_robin"].make()
    assert [set(rounds.choose(score(now, now), 2).tolist()) for _ in range(3)] == [{0, 1}, {2, 3}, {4, 0}]


def test_chance_differs_from_step_to_step_and_not_from_picture_to_picture():
    now = torch.zeros(8, 1, 1, 1)
    pictures = [[score(now, now) for _ in range(2)] for score in (SCORES["random"].make(), SCORES["random"].make())]
    assert torch.equal(pictures[0][0], pictures[1][0])
    assert not torch.equal(pictures[0][0], pictures[0][1])
    assert all(((scores >= 0) & (scores < 10)).all() for scores in pictures[0])
