"""Real CUDA graphs on one GPU; the peers of a patch method are played by torch's fake process group."""

import pytest
import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.choices import Engine, Parallelism, SyncMode
from otil_exp.exchange import step_kinds
from otil_exp.topology import RankContext, Topology
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream import build_unet
from tiny_sdxl import tiny_inputs, tiny_unet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TIMESTEPS = [981.0, 961.5, 500.9, 20.0, 1.0]


def on_gpu(inputs):
    moved = {name: value.cuda() for name, value in inputs.items() if name != "added_cond_kwargs"}
    return moved | {"added_cond_kwargs": {name: value.cuda() for name, value in inputs["added_cond_kwargs"].items()}}


@torch.no_grad()
def picture(ranks, engine, **settings):
    """Predictions and traffic of each step."""
    inputs, traffic = on_gpu(tiny_inputs()), TrafficCounter()
    shape = {"warmup_steps": 1, "height": 128, "width": 128, "guidance": True}
    unet = build_unet(tiny_unet().cuda(), ranks, engine=engine, traffic=traffic, **shape, **settings)
    unet.prepare(timestep=0, **inputs)
    unet.begin(step_kinds(len(TIMESTEPS), 1))
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
    return RankContext(topology=topology, rank=0, local_rank=0, device=torch.device("cuda", 0))


def test_a_replayed_reference_is_the_called_one():
    called, _ = picture(rank_0_of(1), Engine.eager, parallelism=Parallelism.none)
    replayed, _ = picture(rank_0_of(1), Engine.cuda_graph, parallelism=Parallelism.none)
    for ours, theirs in zip(replayed, called, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.fixture
def _fake_peers():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_fake_peers")
@pytest.mark.parametrize("mode", SyncMode)
def test_every_kind_of_patch_step_is_captured_with_the_traffic_of_a_call(mode):
    settings = {"parallelism": Parallelism.patch, "sync_mode": mode}
    _, called = picture(rank_0_of(2), Engine.eager, **settings)
    predictions, replayed = picture(rank_0_of(2), Engine.cuda_graph, **settings)
    assert replayed == called
    assert len({prediction.data_ptr() for prediction in predictions}) == len(TIMESTEPS)


@torch.no_grad()
@pytest.mark.usefixtures("_fake_peers")
def test_a_replayed_step_never_makes_the_host_wait():
    """Torch raises at the first synchronisation; the timestep comes from the CPU, as the scheduler's does."""
    settings = {"parallelism": Parallelism.patch, "sync_mode": SyncMode.no_sync, "noise_gather": False}
    inputs, traffic = on_gpu(tiny_inputs()), TrafficCounter()
    shape = {"warmup_steps": 1, "height": 128, "width": 128, "guidance": True}
    unet = build_unet(tiny_unet().cuda(), rank_0_of(2), engine=Engine.cuda_graph, traffic=traffic, **shape, **settings)
    unet.prepare(timestep=0, **inputs)
    unet.begin(step_kinds(len(TIMESTEPS), 1))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in TIMESTEPS:
            unet(timestep=torch.tensor(t), **inputs, return_dict=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    unet.close()
