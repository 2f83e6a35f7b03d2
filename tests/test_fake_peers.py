"""A rank among fake peers has the place and the groups that it has among real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributed as dist

from otil_exp.fake_peers import among_fake_peers
from otil_exp.topology import RankContext, Topology
from places import place
from ranks import run_ranks

CPU = torch.device("cpu")
SPLIT = Topology(world_size=4, split_batch=True)


def described(ranks: RankContext) -> dict[str, Any]:
    """Names of groups are those in a graph's collectives."""
    groups = [ranks.batch_group, ranks.pair_group]
    return {
        "place": (ranks.rank, ranks.batch_half, ranks.slice_index),
        "names": [group and group.group_name for group in groups],
        "members": [group and dist.get_process_group_ranks(group) for group in groups],
    }


def real_and_fake(rank: int, split_batch: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    ranks = place(rank, split_batch=split_batch)
    real = described(ranks)
    dist.barrier()
    dist.destroy_process_group()
    return real, described(among_fake_peers(ranks.topology, CPU, rank=rank))


@pytest.mark.ranks
@pytest.mark.parametrize("split_batch", [False, True])
def test_groups_have_the_names_that_they_have_among_real_ranks(split_batch: bool) -> None:
    found = run_ranks(4, real_and_fake, split_batch)
    assert len({str(real) for real, _ in found}) == 4
    for real, fake in found:
        assert fake == real


def test_a_second_place_in_a_process_has_as_many_peers() -> None:
    try:
        assert among_fake_peers(SPLIT, CPU, rank=3).slice_index == 1
        with pytest.raises(AssertionError, match="one process group"):
            among_fake_peers(Topology(world_size=2, split_batch=False), CPU)
    finally:
        dist.destroy_process_group()


def test_a_rank_alone_needs_no_group() -> None:
    alone = among_fake_peers(Topology(world_size=1, split_batch=False), CPU)
    assert alone.batch_group is None
    assert not dist.is_initialized()
