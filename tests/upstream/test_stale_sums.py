"""Tensor parallelism that does not wait: what is added up, layer by layer, and what the whole UNet makes of it."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist

from otil_exp.choices import StaleSums, TensorLayers
from otil_exp.methods.tensor.config import TensorConfig
from otil_exp.traffic import Traffic
from otil_exp.upstream.stale_sums import LayerSum
from places import place
from ranks import run_ranks
from trajectories import TENSOR, TIMESTEPS, WARMUP, counted, picture, prepared

pytestmark = pytest.mark.ranks

STALE = {kind: TensorConfig(name="tensor_stale", stale=kind, stale_layers=list(TensorLayers)) for kind in StaleSums}
PARTIALS = [[1.0, 20.0, 300.0], [2.0, 50.0, 700.0], [4.0, 90.0, 100.0], [8.0, 10.0, 200.0]]
"""Partial sums of three ranks at four steps, of which the first one or two are warm-up."""


def layer_sums(rank, stale, warmup_steps=0, forecast=False):
    """What one layer's sum is at each step on this rank."""
    config = SimpleNamespace(batch_group=dist.group.WORLD, warmup_steps=warmup_steps)
    layer = SimpleNamespace(counter=0, distri_config=config)
    layer_sum, seen = LayerSum(layer, stale, torch.ones(()) if forecast else None), []
    for layer.counter, partials in enumerate(PARTIALS):
        partial = torch.tensor(partials[rank])
        layer_sum.add_up(partial)
        seen.append(partial.item())
    layer_sum.wait()
    return seen


@pytest.mark.parametrize(
    ("stale", "expected"),
    [
        # own now, the two peers' of the step before
        (StaleSums.peers, [[321, 2 + 320, 4 + 750, 8 + 190], [321, 351, 792, 114], [321, 721, 152, 294]]),
        (StaleSums.all, [[321, 321, 752, 194]] * 3),
    ],
)
def test_a_layer_adds_up_what_it_says_it_does(stale, expected):
    assert run_ranks(3, layer_sums, stale) == expected


@pytest.mark.parametrize(
    ("stale", "expected"),
    [
        # the peers' sums were 320 and 750 (rank 0), 301 and 702, 21 and 52: their lines lead to 1180, 1103 and 83
        (StaleSums.peers, [[321, 752, 1184, -362], [321, 752, 1193, -484], [321, 752, 183, 336]]),
        (StaleSums.all, [[321, 752, 2 * 752 - 321, 2 * 194 - 752]] * 3),
    ],
)
def test_what_is_late_is_carried_on_along_a_line(stale, expected):
    assert run_ranks(3, layer_sums, stale, 1, True) == expected


def still(ranks, preset):
    """Predictions when latent and timestep stay as they are: what is late is then as good as new."""
    with prepared(ranks, preset) as ready:
        ready.unet.begin(ready.steps)
        with torch.no_grad():
            made = [ready.unet(timestep=torch.tensor(500.0), **ready.inputs, return_dict=False)[0] for _ in TIMESTEPS]
        ready.unet.finish()
        return made


def work(rank):
    ranks = place(rank, split_batch=False)
    none = TensorConfig(name="tensor_stale", stale=StaleSums.peers)
    part = {layers: replace(none, stale=StaleSums.all, stale_layers=[layers]) for layers in TensorLayers}
    tensor, blocking = counted(ranks, TENSOR)
    called, replayed, sent = {}, {}, {}
    for kind, preset in STALE.items():
        with prepared(ranks, preset) as ready:
            first, sent[kind] = ready.counted()
            called[kind] = [first, list(ready.picture())]
        replayed[kind], sent[kind, "replayed"] = counted(ranks, preset, graphs=True)
    return {
        "tensor": tensor,
        "none": picture(ranks, none),
        "still tensor": still(ranks, TENSOR),
        "still": {kind: still(ranks, preset) for kind, preset in STALE.items()},
        "called": called,
        "replayed": replayed,
        "parts": {layers: picture(ranks, preset) for layers, preset in part.items()},
        "traffic": [blocking, sent[StaleSums.peers]],
        "replayed traffic": sent[StaleSums.peers, "replayed"],
    }


@pytest.fixture(scope="module")
def made():
    return run_ranks(2, work, timeout=120)


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def apart(ours, theirs):
    return [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)]


def test_without_stale_layers_it_is_tensor_parallelism_bit_for_bit(made):
    assert same(made[0]["none"], made[0]["tensor"])


@pytest.mark.parametrize("kind", StaleSums)
def test_warm_up_is_tensor_parallelism_and_later_steps_are_not(made, kind):
    differences = apart(made[0]["called"][kind][0], made[0]["tensor"])
    assert max(differences[: WARMUP + 1]) == 0
    assert min(differences[WARMUP + 1 :]) > 1e-3


@pytest.mark.parametrize("kind", StaleSums)
def test_where_nothing_changes_what_is_late_is_exact(made, kind):
    assert same(made[0]["still"][kind], made[0]["still tensor"])


@pytest.mark.parametrize("kind", StaleSums)
def test_pictures_repeat_and_graphs_give_what_calls_give(made, kind):
    for rank in made:
        first, second = rank["called"][kind]
        assert same(first, second)
        assert same(first, rank["replayed"][kind])


@pytest.mark.parametrize("kind", StaleSums)
def test_ranks_agree_on_one_prediction(made, kind):
    """With `peers` each rank's layers added up something else."""
    first, second = made
    assert same(first["called"][kind][0], second["called"][kind][0])


def test_each_kind_of_layers_can_be_late_alone(made):
    results = [made[0]["parts"][layers] for layers in TensorLayers]
    assert all(not same(result, made[0]["tensor"]) for result in results)
    assert all(not same(one, other) for one, other in pairwise(results))


def test_as_many_bytes_cross_as_in_tensor_parallelism_and_one_small_prediction(made):
    tensor, stale = made[0]["traffic"]
    prediction = 2 * 4 * 16 * 16 * 4  # of both halves, float32; an all_reduce of two ranks sends it once
    assert stale[: WARMUP + 1] == tensor[: WARMUP + 1]
    for late, blocking in zip(stale[WARMUP + 1 :], tensor[WARMUP + 1 :], strict=True):
        assert late == Traffic(blocking.collectives + 1, blocking.bytes_sent + prediction)
    assert made[0]["replayed traffic"] == stale
