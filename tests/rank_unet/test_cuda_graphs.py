"""Real CUDA graphs on one GPU; the peers of a patch method are played by torch's fake process group."""

import pytest
import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.choices import Engine
from otil_exp.methods.geometry import steps_of
from otil_exp.methods.rooms import step_of
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.topology import RankContext, Topology
from otil_exp.traffic import TrafficCounter
from tiny_sdxl import tiny_inputs, tiny_unet
from trajectories import MODES, UNGATHERED, cell, layers_in

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TIMESTEPS = [981.0, 961.5, 500.9, 20.0, 1.0]


def on_gpu(inputs):
    moved = {name: value.cuda() for name, value in inputs.items() if name != "added_cond_kwargs"}
    return moved | {"added_cond_kwargs": {name: value.cuda() for name, value in inputs["added_cond_kwargs"].items()}}


def begun(preset, ranks, engine, traffic):
    """The UNet of a method at the start of a picture, and the inputs of its steps."""
    inputs = on_gpu(tiny_inputs())
    config = cell(preset, ranks, inputs, engine=engine)
    unet = RankUNet(step_of(config).build(config, ranks, tiny_unet().cuda(), traffic), tuple(inputs["sample"].shape))
    unet.prepare(timestep=0, **inputs)
    unet.begin(steps_of(config))
    return unet, inputs


@torch.no_grad()
def picture(ranks, engine, preset):
    """Predictions and traffic of each step."""
    traffic = TrafficCounter()
    unet, inputs = begun(preset, ranks, engine, traffic)
    predictions, sent = [], []
    with traffic.installed():
        traffic.take()
        for t in TIMESTEPS:
            predictions.append(unet(timestep=torch.tensor(t).cuda(), **inputs, return_dict=False)[0])
            sent.append(traffic.take())
    unet.finish()
    unet.close()
    return predictions, sent


def rank_0_of(world_size):
    topology = Topology(world_size=world_size, split_batch=False)
    return RankContext(topology=topology, rank=0, device=torch.device("cuda", 0))


def test_a_replayed_reference_is_the_called_one():
    called, _ = picture(rank_0_of(1), Engine.eager, REFERENCE)
    replayed, _ = picture(rank_0_of(1), Engine.cuda_graph, REFERENCE)
    for ours, theirs in zip(replayed, called, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.fixture
def _fake_peers():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_fake_peers")
@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_patch_step_is_captured_with_the_traffic_of_a_call(mode):
    _, called = picture(rank_0_of(2), Engine.eager, layers_in(mode))
    predictions, replayed = picture(rank_0_of(2), Engine.cuda_graph, layers_in(mode))
    assert replayed == called
    assert len({prediction.data_ptr() for prediction in predictions}) == len(TIMESTEPS)


@torch.no_grad()
@pytest.mark.usefixtures("_fake_peers")
def test_a_replayed_step_never_makes_the_host_wait():
    """Torch raises at the first synchronisation; the timestep comes from the CPU, as the scheduler's does."""
    unet, inputs = begun(UNGATHERED, rank_0_of(2), Engine.cuda_graph, TrafficCounter())
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in TIMESTEPS:
            unet(timestep=torch.tensor(t), **inputs, return_dict=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    unet.close()
