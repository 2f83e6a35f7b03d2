"""Layers whose context is exchanged for them: against upstream's own forward, called and replayed."""

from functools import partial

import pytest
import torch
from places import place
from trajectories import WARMUP, patch_picture, patch_traffic, plain
from unpatched import upstream_picture

from otil_exp.choices import GnSync, GroupNormKind, SyncMode
from otil_exp.exchange import BlockGrid, ContextExchange, Selection
from ranks import run_ranks

pytestmark = pytest.mark.ranks

GRID = BlockGrid(rows=8, width=16, block_size=2)
"""A slice of tiny_inputs on two ranks: 4 x 8 blocks; at a quarter of the resolution a cell covers four of them."""


def work(rank):
    ranks = place(rank, split_batch=False)
    upstream = {"groupnorm": GroupNormKind.upstream, "sync_mode": SyncMode.no_sync}

    def blocks(k):
        return partial(
            ContextExchange, GRID, selection=Selection(k=k), slice_index=rank, slices=2, group=ranks.batch_group
        )

    return {
        "all": patch_picture(ranks, **upstream, make_context=blocks(32)),
        "all synchronised": patch_picture(ranks, **upstream, gn_sync=GnSync.exact, make_context=blocks(32)),
        "upstream": {
            mode: upstream_picture(ranks, parallelism="patch", mode=mode) for mode in ("separate_gn", "sync_gn")
        },
        "some": patch_picture(ranks, **upstream, make_context=blocks(8)),
        "some replayed": patch_picture(ranks, **upstream, make_context=blocks(8), graphs=True),
        "exact": patch_picture(
            ranks,
            sync_mode=SyncMode.no_sync,
            gn_sync=GnSync.exact,
            make_context=blocks(8),
            warmup_steps=0,
            refresh_period=1,
        ),
        "traffic": [
            patch_traffic(ranks, **upstream, make_context=blocks(8), graphs=graphs)[WARMUP + 1 :]
            for graphs in (False, True)
        ],
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


def test_a_refresh_in_every_step_is_one_process(made):
    for ours, theirs in zip(made[0]["exact"], plain(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
