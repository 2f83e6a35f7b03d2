"""What a rule advises can be typed."""

from __future__ import annotations

import pytest

from otil_exp.conf_tree import options
from otil_exp.methods.topology_advice import typed
from otil_exp.topology import Topology


@pytest.mark.parametrize("split", [False, True])
def test_of_every_number_of_ranks_it_is_a_choice_or_the_two_settings(split: bool) -> None:
    for world_size in range(2, 13, 1 + split):
        words = typed(Topology(world_size=world_size, split_batch=split))
        group, _, choice = words.partition("=")
        if group == "topology":
            assert choice in options("topology")
        else:
            assert words == f"topology.world_size={world_size} topology.split_batch={'true' if split else 'false'}"


def test_the_choices_that_there_are_are_preferred() -> None:
    assert typed(Topology(world_size=4, split_batch=True)) == "topology=4gpu_split"
    assert typed(Topology(world_size=1, split_batch=False)) == "topology=1gpu"
    assert typed(Topology(world_size=5, split_batch=False)) == "topology.world_size=5 topology.split_batch=false"
