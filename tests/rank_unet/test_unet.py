"""RankUNet in one process: the interface that diffusers' pipeline calls. Oracle: diffusers' own UNet."""

import gc
import weakref

import pytest
import torch

from emulated_graph import emulated_graphs
from otil_exp.methods.rooms import step_of
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.rank_unet.engine import CudaGraphs
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.schedule import schedule
from otil_exp.traffic import TrafficCounter
from places import among_fake_peers, place_without_peers
from tiny_sdxl import tiny_inputs, tiny_pipeline, tiny_unet
from trajectories import FULL_SYNC, UNGATHERED, cell, layers_in


def rank_unet(*, graphs=False, prepare=True, preset=REFERENCE, ranks=None):
    inputs, traffic, ranks = tiny_inputs(height=64, width=64), TrafficCounter(), ranks or place_without_peers()
    config = cell(preset, ranks, inputs)
    method = step_of(config).build(config, ranks, tiny_unet(), traffic)
    unet = RankUNet(method, tuple(inputs["sample"].shape))
    if graphs:
        method.engine = CudaGraphs(traffic, emulated_graphs(traffic))
    if prepare:
        unet.prepare(timestep=0, **inputs)
    return unet


@pytest.fixture
def inputs():
    return tiny_inputs(height=64, width=64)


@torch.no_grad()
def call(unet, inputs, timestep):
    rest = {name: value for name, value in inputs.items() if name != "sample"}
    return unet(inputs["sample"], timestep, **rest, return_dict=False)[0]


@pytest.mark.parametrize("preset", [REFERENCE, layers_in("no_sync")])
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("timestep", [torch.tensor(981), torch.tensor(500.9), torch.tensor([500.9, 500.9]), 500.9])
def test_one_rank_is_plain_diffusers_bit_for_bit(inputs, preset, graphs, timestep):
    unet = rank_unet(graphs=graphs, preset=preset)
    unet.begin(schedule(1, 0))
    assert torch.equal(call(unet, inputs, timestep), call(tiny_unet(), inputs, timestep))


def test_the_sdxl_pipeline_takes_it_as_its_unet(tmp_path):
    def latents(unet):
        pipeline = tiny_pipeline(tiny_unet(), tmp_path)
        pipeline.unet = unet
        seeded = torch.Generator().manual_seed(3)
        arguments = {"height": 64, "width": 64, "num_inference_steps": 3, "output_type": "latent"}
        return pipeline("a cat", guidance_scale=5.0, generator=seeded, **arguments).images

    unet = rank_unet()
    unet.begin(schedule(3, 1))
    assert torch.equal(latents(unet), latents(tiny_unet()))


def test_a_prediction_survives_the_next_step(inputs):
    unet = rank_unet(graphs=True)
    unet.begin(schedule(2, 1))
    first = call(unet, inputs, 900)
    kept = first.clone()
    call(unet, inputs, 20)
    assert torch.equal(first, kept)


def test_the_callers_inputs_are_not_edited(inputs):
    unet = rank_unet()
    unet.begin(schedule(1, 0))
    before = dict(inputs["added_cond_kwargs"])
    call(unet, inputs, 900)
    assert inputs["added_cond_kwargs"] == before


def test_without_return_dict_false_the_output_is_diffusers_object(inputs):
    unet = rank_unet()
    unet.begin(schedule(1, 0))
    with torch.no_grad():
        assert unet(timestep=torch.tensor(900), **inputs).sample.shape == (2, 4, 8, 8)


def test_more_calls_than_steps_are_refused(inputs):
    unet = rank_unet()
    unet.begin(schedule(1, 0))
    call(unet, inputs, 900)
    with pytest.raises(AssertionError, match="schedulers that call the UNet twice a step"):
        call(unet, inputs, 900)


@pytest.mark.parametrize(
    "argument", ["class_labels", "timestep_cond", "attention_mask", "cross_attention_kwargs", "encoder_attention_mask"]
)
def test_an_argument_that_layers_would_ignore_is_refused_by_name(inputs, argument):
    unet = rank_unet(prepare=False)
    with pytest.raises(ValueError, match=argument):
        unet(timestep=0, **inputs, **{argument: {"scale": 0.5}})


def test_two_pictures_at_once_are_refused():
    unet = rank_unet(prepare=False)
    with pytest.raises(ValueError, match="one picture a call"):
        unet(timestep=0, **tiny_inputs(height=64, width=64, batch=4))


def test_the_pipeline_finds_what_it_reads_of_a_unet():
    unet, plain = rank_unet(prepare=False), tiny_unet()
    assert unet.config == plain.config
    assert (unet.dtype, unet.device) == (plain.dtype, plain.device)
    assert unet.add_embedding.linear_1.in_features == plain.add_embedding.linear_1.in_features


@pytest.fixture
def rank_with_a_fake_peer():
    with among_fake_peers() as ranks:
        yield ranks


@torch.no_grad()
@pytest.mark.parametrize("preset", [UNGATHERED, FULL_SYNC])
def test_a_step_does_not_walk_the_modules(inputs, monkeypatch, rank_with_a_fake_peer, preset):
    """SDXL has 1,930: what is done to all layers in every step is done to a list."""
    unet = rank_unet(preset=preset, ranks=rank_with_a_fake_peer)
    unet.begin(schedule(2, 0))

    def walk(self, *_, **__):
        raise AssertionError(f"walked the modules of a {type(self).__name__}")

    monkeypatch.setattr(torch.nn.Module, "named_modules", walk)
    call(unet, inputs, 981.0)
    call(unet, inputs, 500.9)


def test_a_closed_unet_has_dropped_its_graphs_and_cannot_be_called(inputs):
    """NCCL does not end while there are graphs of its collectives."""
    unet = rank_unet(graphs=True)
    engine = weakref.ref(unet.method.engine)
    unet.close()
    gc.collect()
    assert engine() is None
    unet.close()
    with pytest.raises(AssertionError, match="closed"):
        unet.begin(schedule(2, 1))
    with pytest.raises(AssertionError, match="closed"):
        call(unet, inputs, 981.0)
