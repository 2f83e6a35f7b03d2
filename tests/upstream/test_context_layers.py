"""Layers whose context is exchanged for them: against upstream's own forward, called and replayed."""

from dataclasses import replace

import pytest
import torch

from otil_exp.choices import GroupNormKind
from otil_exp.methods.context_blocks.config import ContextBlocksConfig, ContextConfig
from places import place
from ranks import run_ranks
from tiny_sdxl import tiny_inputs
from trajectories import WARMUP, counted, picture, plain
from unpatched import upstream_picture

pytestmark = pytest.mark.ranks

BLOCKS = ContextBlocksConfig(name="otil_context", context=ContextConfig(block_size=1))
INPUTS = {"height": 64, "width": 64}
"""On two ranks a slice has 4 x 8 blocks; at half the resolution a cell covers four of them."""
SYNCHRONISED = replace(BLOCKS, gn_sync=True)
REFRESH = {"warmup_steps": 0, "refresh_period": 3}
"""Steps 0 and 3 are synchronous; what is sent after step 1 is read in step 2."""


def work(rank):
    ranks = place(rank, split_batch=False)
    upstream = {"groupnorm": GroupNormKind.upstream}
    small = {"inputs": tiny_inputs(**INPUTS)}
    some, called = counted(ranks, BLOCKS, **upstream, **small, k=8)
    some_replayed, replayed = counted(ranks, BLOCKS, **upstream, **small, k=8, graphs=True)
    return {
        "all": picture(ranks, BLOCKS, **upstream, **small, k=32),
        "all synchronised": picture(ranks, SYNCHRONISED, **upstream, **small, k=32),
        "upstream": {
            mode: upstream_picture(ranks, parallelism="patch", mode=mode, **INPUTS, **small)
            for mode in ("separate_gn", "sync_gn")
        },
        "some": some,
        "some replayed": some_replayed,
        "refreshed": picture(ranks, SYNCHRONISED, k=8, **small, **REFRESH),
        "traffic": [called, replayed],
    }


@pytest.fixture(scope="module")
def made():
    return run_ranks(2, work, timeout=120)


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("ours", "mode"), [("all", "separate_gn"), ("all synchronised", "sync_gn")])
def test_all_blocks_are_upstreams_forward_bit_for_bit(made, ours, mode):
    for rank in made:
        assert same(rank[ours], rank["upstream"][mode])


def test_some_blocks_leave_the_rest_as_it_was(made):
    differences = [(a - b).abs().max().item() for a, b in zip(made[0]["some"], made[0]["all"], strict=True)]
    assert differences[: WARMUP + 2] == [0, 0, 0]  # what was sent after warm-up is used one step later
    assert min(differences[WARMUP + 2 :]) > 0


def test_graphs_give_what_calls_give(made):
    for rank in made:
        assert same(rank["some replayed"], rank["some"])
    called, replayed = made[0]["traffic"]
    assert called == replayed


def test_a_synchronous_step_is_one_process_whatever_was_sent_before_it(made):
    expected = plain(inputs=tiny_inputs(**INPUTS))
    apart = [(ours - theirs).abs().max().item() for ours, theirs in zip(made[0]["refreshed"], expected, strict=True)]
    assert max(apart[0], apart[3]) <= 2e-6
    assert min(apart[1], apart[2], apart[4]) > 1e-3
