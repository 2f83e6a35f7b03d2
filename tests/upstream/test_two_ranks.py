"""Two slices, the batch not split: against plain diffusers, and against upstream's own forward bit for bit."""

import pytest
import torch

from otil_exp.choices import GroupNormKind
from otil_exp.methods.naive_patch.config import NaivePatchConfig, SplitScheme
from otil_exp.upstream.distri_config import RankConfig
from places import place
from ranks import run_ranks
from tiny_sdxl import tiny_inputs
from trajectories import FULL_SYNC, MODES, TENSOR, UNGATHERED, WARMUP, counted, layers_in, picture, plain, prepared
from unpatched import upstream_picture

pytestmark = pytest.mark.ranks

ASYNCHRONOUS = [mode for mode in MODES if mode not in ("full_sync", "no_sync")]


def work(rank):
    ranks = place(rank, split_batch=False)
    upstream = {"groupnorm": GroupNormKind.upstream}
    repeated, replayed, stale_traffic = {}, {}, []
    for mode in ASYNCHRONOUS:
        with prepared(ranks, layers_in(mode)) as ready:
            first, called = ready.counted()
            repeated[mode] = [first, *(list(ready.picture()) for _ in range(2))]
        replayed[mode], sent = counted(ranks, layers_in(mode), graphs=True)
        if mode == "stale_gn":
            stale_traffic = [called, sent]
    return {
        "exact": picture(ranks, FULL_SYNC),
        "exact no guidance": picture(ranks, FULL_SYNC, inputs=tiny_inputs(batch=1)),
        "tensor": picture(ranks, TENSOR),
        "modes": {mode: picture(ranks, layers_in(mode), **upstream) for mode in MODES},
        "upstream modes": {mode: upstream_picture(ranks, parallelism="patch", mode=str(mode)) for mode in MODES},
        "naive": {
            scheme: picture(ranks, NaivePatchConfig(name="naive_patch", split_scheme=scheme)) for scheme in SplitScheme
        },
        "upstream naive": {
            scheme: upstream_picture(ranks, parallelism="naive_patch", split_scheme=scheme.value)
            for scheme in SplitScheme
        },
        "repeated": repeated,
        "replayed": replayed,
        "stale traffic": stale_traffic,
        "ungathered": picture(ranks, UNGATHERED, **upstream),
        "world size of a second config": RankConfig(
            ranks, parallelism="patch", mode="no_sync", warmup_steps=1, height=64, width=64, guidance=True
        ).world_size,
    }


@pytest.fixture(scope="module")
def made():
    return run_ranks(2, work, timeout=120)


def worst(ours, theirs):
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def same(ours, theirs):
    return [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]


def test_full_sync_with_exact_groupnorm_is_one_process(made):
    assert worst(made[0]["exact"], plain()) <= 2e-6


def test_full_sync_without_guidance_is_one_process(made):
    assert worst(made[0]["exact no guidance"], plain(inputs=tiny_inputs(batch=1))) <= 2e-6


def test_upstreams_groupnorm_is_not_one_process(made):
    assert worst(made[0]["upstream modes"]["full_sync"], plain()) > 1e-3  # the fault that `exact` repairs


def test_tensor_parallelism_is_one_process(made):
    assert worst(made[0]["tensor"], plain()) <= 2e-6


@pytest.mark.parametrize("mode", MODES)
def test_groupnorm_upstream_is_upstreams_forward_bit_for_bit(made, mode):
    for rank in made:
        assert all(same(rank["modes"][mode], rank["upstream modes"][mode]))


@pytest.mark.parametrize("scheme", SplitScheme)
def test_naive_patch_is_upstreams_bit_for_bit(made, scheme):
    for rank in made:
        assert all(same(rank["naive"][scheme], rank["upstream naive"][scheme]))


@pytest.mark.parametrize("mode", ASYNCHRONOUS)
def test_the_same_picture_comes_out_every_time_although_the_queue_holds_all_tensors(made, mode):
    first, *others = made[0]["repeated"][mode]
    assert all(all(same(other, first)) for other in others)


@pytest.mark.parametrize("mode", ASYNCHRONOUS)
def test_graphs_give_what_calls_give(made, mode):
    for rank in made:
        assert all(same(rank["replayed"][mode], rank["repeated"][mode][0]))


def test_an_asynchronous_step_sends_layers_statistics_and_prediction_in_one_collective_each(made):
    called, replayed = made[0]["stale traffic"]
    assert [step.collectives for step in called[WARMUP + 1 :]] == [3, 3, 3]
    assert replayed == called


def test_without_a_gather_a_rank_renews_both_halves_of_its_own_slice_only(made):
    whole = made[0]["upstream modes"]["no_sync"]
    for rank, results in enumerate(made):
        own = (slice(None), slice(None), slice(8 * rank, 8 * rank + 8))
        for step, prediction in enumerate(results["ungathered"]):
            expected = whole[min(step, WARMUP)].clone()
            expected[own] = whole[step][own]
            assert torch.equal(prediction, expected)


def test_a_second_config_in_a_process_does_not_fall_back_to_one_rank(made):
    assert [rank["world size of a second config"] for rank in made] == [2, 2]
