import math

import pytest
import torch

from otil_exp.exchange import SCORES, cosine_dissimilarity


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


@pytest.mark.parametrize("value", [1e30, 1e-30, math.inf, math.nan])
def test_values_beyond_float32s_squares_never_give_nan(value):
    assert cosine_dissimilarity(blocks((value, value)), blocks((value, 1))).tolist() == [0]


def test_the_score_stays_within_zero_and_two():
    now = torch.randn(1000, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    for before in (now, -now, now * 3):
        scores = cosine_dissimilarity(now, before)
        assert ((scores >= 0) & (scores <= 2)).all()


def test_scores_go_by_the_name_a_user_types():
    assert SCORES["cosine"] is cosine_dissimilarity
