"""refresh.rolling on real ranks: layers take turns, all in a round, and what one sends is there in the next step."""

import pytest
import torch

from otil_exp.choices import CodecScope
from otil_exp.config import CodecConfig, RefreshConfig
from otil_exp.methods.exchanging_layers.config import SyncMode
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from places import place
from ranks import run_ranks
from trajectories import WARMUP, counted, layers_in, picture, prepared, traffic

pytestmark = pytest.mark.ranks

RANKS, PERIOD = 2, 3
BALANCED = {gn_sync: SilentLayersConfig(name="balanced", gn_sync=gn_sync) for gn_sync in (False, True, "fused")}
EVERY_STEP, ROUND = RefreshConfig(period=1, rolling=True), RefreshConfig(period=PERIOD, rolling=True)
RESIDUAL4 = CodecConfig("int4", True, CodecScope.all)


def work(rank):
    ranks = place(rank, split_batch=False)
    late, sent = {}, {}
    for mode in (SyncMode.separate_gn, SyncMode.sync_gn):
        late[mode], sent[mode] = counted(ranks, layers_in(mode))
    turns, in_turns = counted(ranks, BALANCED[True], refresh=ROUND)
    return {
        "late": late,
        "every step": {gn_sync: picture(ranks, preset, refresh=EVERY_STEP) for gn_sync, preset in BALANCED.items()},
        "round": turns,
        "replayed": picture(ranks, BALANCED[True], refresh=ROUND, graphs=True),
        "coded": picture(ranks, BALANCED[True], refresh=ROUND, codec=RESIDUAL4),
        "coded replayed": picture(ranks, BALANCED[True], refresh=ROUND, codec=RESIDUAL4, graphs=True),
        "renewed": renewed(ranks),
        "traffic": [traffic(ranks, BALANCED[True], refresh=RefreshConfig()), in_turns],
        "late traffic": sent[SyncMode.sync_gn],
    }


def renewed(ranks):
    """For each step after warm-up: which tensors of the peer's context are others than before, and which of them are
    what the peer's layers made."""
    with prepared(ranks, BALANCED[True], refresh=ROUND) as ready:
        manager = ready.method._layers._managers[0]
        spans = list(zip(manager.starts, manager.ends, strict=True))
        before, found = None, []
        for _ in ready.picture():
            ready.method._layers.wait()
            held = torch.stack(manager.buffer_list)
            if before is not None:
                found.append([bool((held[:, a:b] != before[:, a:b]).any()) for a, b in spans])
            before = held.clone()
        return spans, found[WARMUP:], before


@pytest.fixture(scope="module")
def made():
    return run_ranks(RANKS, work, timeout=400)


@pytest.mark.parametrize(("gn_sync", "mode"), [(False, SyncMode.separate_gn), (True, SyncMode.sync_gn)])
def test_a_turn_in_every_step_is_distrifusions_context_bit_for_bit(made, gn_sync, mode):
    for rank in made:
        assert all(map(torch.equal, rank["every step"][gn_sync], rank["late"][mode]))
    assert not torch.equal(made[0]["every step"]["fused"][-1], made[0]["every step"][False][-1])


def test_every_layer_has_one_turn_in_a_round_and_turns_are_about_equally_long(made):
    spans, found, _ = made[0]["renewed"]
    assert [sum(turns) for turns in zip(*found, strict=True)] == [1] * len(spans)
    sizes = [sum(b - a for (a, b), sent in zip(spans, step, strict=True) if sent) for step in found]
    whole, largest = spans[-1][1], max(b - a for a, b in spans)
    assert sum(sizes) == whole
    assert all(abs(size - whole / PERIOD) <= largest for size in sizes)


def test_all_ranks_hold_what_was_sent(made):
    assert torch.equal(made[0]["renewed"][2], made[1]["renewed"][2])


def test_a_round_sends_what_one_step_of_late_layers_does_in_one_more_collective_a_step(made):
    silent, rolling = made[0]["traffic"]
    more = [ours.bytes_sent - theirs.bytes_sent for ours, theirs in zip(rolling, silent, strict=True)]
    assert more[: WARMUP + 1] == [0] * (WARMUP + 1)
    assert sum(more) == made[0]["late traffic"][-1].bytes_sent - silent[-1].bytes_sent
    assert all(ours.collectives == theirs.collectives + 1 for ours, theirs in zip(rolling[2:], silent[2:], strict=True))


@pytest.mark.parametrize("codec", ["", "coded "])
def test_graphs_replay_it_bit_for_bit(made, codec):
    assert all(map(torch.equal, made[0][f"{codec}replayed"], made[0][codec.strip() or "round"]))


def test_a_codec_stays_close(made):
    worst = max((a - b).abs().max().item() for a, b in zip(made[0]["coded"], made[0]["round"], strict=True))
    assert 0 < worst < 0.2
