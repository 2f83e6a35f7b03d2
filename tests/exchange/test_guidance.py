import pytest
import torch
from torch import distributed as dist
from watch import collectives

from otil_exp.exchange import repair_pair
from ranks import run_ranks

pytestmark = pytest.mark.ranks


def repair_full_size(rank):
    """One slice of the two of a 1024 x 1024 picture on 4 ranks with split batch: (1, 4, 64, 128) fp16."""
    local = torch.full((1, 4, 64, 128), 1.0 + rank, dtype=torch.float16)
    with collectives() as called:
        return repair_pair(local, batch_half=rank, group=None), called


def test_both_ranks_of_a_pair_get_the_unconditional_half_first():
    for pair, _ in run_ranks(2, repair_full_size):
        assert pair.dtype == torch.float16
        assert pair.shape == (2, 4, 64, 128)
        assert pair[0].unique().tolist() == [1]
        assert pair[1].unique().tolist() == [2]


def test_a_repair_is_one_collective_of_64_kilobytes_at_four_ranks():
    assert [called for _, called in run_ranks(2, repair_full_size)] == [[64 * 1024]] * 2


def repair_in_groups(rank):
    """4 ranks with split batch: ranks 0, 1 unconditional, 2, 3 text; pairs (0, 2) and (1, 3) hold the same slice."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return repair_pair(torch.full((1, 4, 2, 2), float(rank)), batch_half=rank // 2, group=groups[rank % 2])


def test_a_repair_stays_within_the_ranks_that_hold_the_same_slice():
    halves = [pair[:, 0, 0, 0].tolist() for pair in run_ranks(4, repair_in_groups)]
    assert halves == [[0, 2], [1, 3], [0, 2], [1, 3]]


def repair_strided(rank):
    whole = torch.arange(2 * 4 * 4 * 2.0).view(1, 4, 8, 2) + 100 * rank
    local = whole[:, :, 2:4].to(memory_format=torch.channels_last)
    return local.contiguous(), repair_pair(local, rank, None)


def test_a_strided_prediction_arrives_whole():
    (uncond, first), (text, second) = run_ranks(2, repair_strided)
    assert torch.equal(first, torch.cat([uncond, text]))
    assert torch.equal(second, first)
