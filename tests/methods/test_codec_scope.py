"""codec.scope=all on real ranks: what layers exchange in every step, in fewer bytes and close to what it was."""

from dataclasses import replace

import pytest
import torch

from codec_bounds import bound
from otil_exp.choices import CodecScope, GroupNormKind
from otil_exp.config import CodecConfig
from otil_exp.methods.context_blocks.config import ContextBlocksConfig, ContextConfig
from otil_exp.methods.exchanging_layers.config import SyncMode
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from places import place
from ranks import run_ranks
from trajectories import FULL_SYNC, UNGATHERED, counted, layers_in, picture, prepared, traffic

pytestmark = pytest.mark.ranks

RANKS = 2
REFRESH = {"warmup_steps": 1, "refresh_period": 2}
"""Steps 0 and 1 are warm-up, 3 is a refresh, 2 and 4 are not synchronous."""

SILENT = SilentLayersConfig(name="balanced", gn_sync=True)
LATE = layers_in(SyncMode.corrected_async_gn)
BLOCKS = ContextBlocksConfig(name="otil_context", gn_sync=True, context=ContextConfig(block_size=2))
METHODS = {
    "full_sync": (FULL_SYNC, {}),
    "distrifusion": (LATE, {}),
    "upstream": (LATE, {"groupnorm": GroupNormKind.upstream}),
    "balanced": (SILENT, REFRESH),
    "otil": (replace(UNGATHERED, gn_sync=True), REFRESH),
    "otil_context": (BLOCKS, {"warmup_steps": 1, "refresh_period": 3, "k": 16}),  # blocks of step 2 are read in step 3
}


def coded(quantizer, residual=True):
    return CodecConfig(quantizer, residual, CodecScope.all)


CODECS = {
    "int8": coded("int8", False),
    **{f"residual{name[3:]}": coded(name) for name in ("int8", "int4", "int2", "int1")},
}


def work(rank):
    ranks = place(rank, split_batch=False)
    made, sent = {}, {}
    for name, (preset, settings) in METHODS.items():
        made[name, None], sent[name, None] = counted(ranks, preset, **settings)
        made[name, "residual8"], sent[name, "residual8"] = counted(ranks, preset, codec=CODECS["residual8"], **settings)
        with prepared(ranks, preset, codec=CODECS["residual4"], **settings) as ready:
            made[name, "held"], made[name, "lost"], made[name, "residual4"] = watched(ready, rank, preset is FULL_SYNC)
        made[name, "replayed"] = picture(ranks, preset, codec=CODECS["residual4"], graphs=True, **settings)
    others = {name: traffic(ranks, FULL_SYNC, codec=CODECS[name]) for name in CODECS if name != "residual8"}
    made["traffic"] = {**others, "residual8": sent["full_sync", "residual8"]}
    made["traffic", None] = sent["full_sync", None], sent["balanced", None]
    made["sent"] = sent
    return made


def watched(ready, rank, always):
    """What is held after a picture; of its synchronous steps (or always) how far the own context is off, against its
    bound; the predictions."""
    managers = [one for one in ready.method._layers._managers if hasattr(one, "coded") and one.numel]
    before, lost, predictions = [one.buffers.clone() for one in managers], [], []
    for step, prediction in zip(ready.steps, ready.picture(), strict=True):
        predictions.append(prediction)
        ready.method._layers.wait()
        for one, held in zip(managers, before, strict=True):
            if step.synchronous or always:
                lost.extend(layers_lost(one, None if step.index == 0 else held[rank]))
        before = [one.buffers.clone() for one in managers]
    return before, lost, predictions


def layers_lost(manager, before):
    """For each layer: whether every value of the own context is within its bound, and whether any is off at all."""
    own = manager.buffers[manager.distri_config.split_idx()]
    for start, end in zip(manager.starts, manager.ends, strict=True):
        fresh = manager.fresh[start:end]
        sent = fresh if before is None else fresh - before[start:end]
        off = (own[start:end] - fresh).abs()
        yield bool((off <= bound("int8" if before is None else "int4", sent) + 1e-6).all()), bool(off.any())


@pytest.fixture(scope="module")
def made():
    return run_ranks(RANKS, work, timeout=400)


def worst(ours, theirs):
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_all_ranks_hold_the_same_bytes_of_every_slice(made, name):
    first, second = (made[rank][name, "held"] for rank in range(RANKS))
    assert len(first) == (2 if name == "otil_context" else 1)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_context_is_off_by_what_the_codec_loses_of_the_last_change(made, name):
    for rank in made:
        within, off = zip(*rank[name, "lost"], strict=True)
        assert all(within)
        assert sum(off) > len(off) / 2


@pytest.mark.parametrize("name", METHODS)
def test_a_finer_codec_is_closer_to_no_codec(made, name):
    """Predictions are of order 1. A value is off by a 254th of its group's largest change, or by a 14th."""
    fine, coarse = (worst(made[0][name, codec], made[0][name, None]) for codec in ("residual8", "residual4"))
    assert 0 < fine < 0.02
    assert fine < coarse < 0.2


@pytest.mark.parametrize("name", METHODS)
def test_graphs_replay_it_bit_for_bit(made, name):
    assert all(map(torch.equal, made[0][name, "replayed"], made[0][name, "residual4"]))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_awaited_is_counted_as_awaited_with_any_codec(made, name):
    """A projection to a slow link takes what nothing waits for as hidden behind the computation."""
    for rank in made:
        plain, in_bytes = (map(awaited, rank["sent"][name, codec]) for codec in (None, "residual8"))
        assert list(plain) == list(in_bytes)


def awaited(sent):
    """How many messages of a step are waited for."""
    return sum(message.waits for message in sent.messages.elements())


@pytest.mark.parametrize(("codec", "bits"), zip(CODECS, (8, 8, 4, 2, 1), strict=True))
def test_the_bytes_of_context_are_those_of_the_codec_and_the_rest_as_it_was(made, codec, bits):
    """What layers with exact GroupNorm send in a step is context, statistics and the noise prediction; silent ones send
    all but context. Every layer's context is whole groups of 128 float32, each of which takes 4 bytes and the bits."""
    for rank in made:
        everything, without = (steps[2].bytes_sent for steps in rank["traffic", None])
        context = everything - without
        for step, sent in enumerate(rank["traffic"][codec]):
            per_group = 4 + 128 * (8 if step == 0 else bits) // 8
            assert sent.bytes_sent == without + context * per_group // (4 * 128)
            assert sent.collectives == rank["traffic", None][0][step].collectives
