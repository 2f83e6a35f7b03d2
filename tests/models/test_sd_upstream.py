"""groupnorm=upstream on UNets of four levels. Oracle: distrifuser's own forward, unpatched but for two crashes."""

from __future__ import annotations

import pytest
import torch

import tiny_sd
from otil_exp.choices import GroupNormKind
from places import place
from ranks import run_ranks
from trajectories import MODES, layers_in, picture
from unpatched import upstream_picture

STEPS = 3
"""One of warm-up, one that reads what it left, one that reads what a late step left."""
SIZE = {"height": 128, "width": 64}
"""A slice has one row of the lowest level."""

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]


def work(rank: int, split_batch: bool) -> dict[tuple[str, str], bool]:
    """By kind of model and mode, whether all predictions are the same to the last bit."""
    ranks, inputs, same = place(rank, split_batch=split_batch), tiny_sd.tiny_inputs(**SIZE), {}
    for kind in tiny_sd.KINDS:
        for mode in MODES:
            both = {"inputs": inputs, "steps": STEPS, "warmup_steps": 0}
            unet = tiny_sd.tiny_unet(kind)
            ours = picture(ranks, layers_in(mode), groupnorm=GroupNormKind.upstream, unet=unet, **both)
            unet = tiny_sd.tiny_unet(kind)
            theirs = upstream_picture(ranks, parallelism="patch", mode=str(mode), unet=unet, **both, **SIZE)
            same[kind, str(mode)] = all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
            assert len(ours) == len(theirs) == STEPS
    return same


@pytest.mark.parametrize(("world_size", "split_batch"), [(2, False), (4, True)])
def test_groupnorm_upstream_is_upstreams_forward_bit_for_bit(world_size: int, split_batch: bool) -> None:
    for same in run_ranks(world_size, work, split_batch, timeout=600):
        assert same == {(kind, str(mode)): True for kind in tiny_sd.KINDS for mode in MODES}
