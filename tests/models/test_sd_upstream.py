"""groupnorm=upstream on UNets of four levels. Oracle: distrifuser's own forward, unpatched but for two crashes."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import distributed as dist

import pipelines
import tiny_sd
from composing import Typed
from otil_exp import topology as t
from otil_exp.cells.normal_form import effective
from otil_exp.config import ExperimentConfig, ModelConfig
from otil_exp.methods.geometry import steps_of
from otil_exp.methods.rooms import step_of
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.topology import RankContext, Topology
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import DistriUNetPP, PatchParallelismCommManager
from otil_exp.upstream.patches import applied
from ranks import run_ranks

pytestmark = pytest.mark.ranks

TIMESTEPS = [981.0, 961.0, 941.0, 921.0, 901.0]
WARMUP = 1

MODES = {
    "full_sync": "preset=full_sync",
    "no_sync": "preset=balanced",
    **{f"{m}": "preset=distrifusion" for m in ("corrected_async_gn", "stale_gn", "sync_gn", "separate_gn")},
}
"""distrifuser's name for what layers exchange -> the preset that does it."""


def step_inputs(step: int) -> dict[str, Any]:
    """The latent moves a little each time."""
    inputs = tiny_sd.tiny_inputs()
    return inputs | {"sample": inputs["sample"] * (1 - 0.1 * step)}


@torch.no_grad()
def ours(config: ExperimentConfig, ranks: RankContext, kind: str) -> list[torch.Tensor]:
    """What a rank's UNet predicts at each step."""
    method = step_of(config).build(config, ranks, tiny_sd.tiny_unet(kind), TrafficCounter())
    unet = RankUNet(method, tuple(step_inputs(0)["sample"].shape))
    unet.prepare(timestep=0, added_cond_kwargs={}, **step_inputs(0))
    unet.begin(steps_of(config))
    made = [unet(timestep=torch.tensor(x), **step_inputs(i), return_dict=False)[0] for i, x in enumerate(TIMESTEPS)]
    unet.finish()
    unet.close()
    return made


@torch.no_grad()
def upstreams(mode: str, ranks: RankContext, kind: str) -> list[torch.Tensor]:
    """The same by distrifuser, as its pipeline drives it; seven tensors a collective (patches/comm_queue.py)."""
    size = {"height": 128, "width": 128, "guidance": True}
    config = RankConfig(ranks, parallelism="patch", mode=mode, warmup_steps=WARMUP, comm_checkpoint=7, **size)
    with applied("peft_flag", "conv_shortcut"):
        model = DistriUNetPP(tiny_sd.tiny_unet(kind), config)
        manager = PatchParallelismCommManager(config)
        model.set_comm_manager(manager)
        for _ in range(2):  # the first call registers the layers' tensors (pipelines.py:128-143)
            model.set_counter(0)
            model(timestep=torch.zeros((), dtype=torch.long), **step_inputs(0), return_dict=False, record=True)
            if manager.buffer_list is None and manager.numel:
                manager.create_buffer()
        model.set_counter(0)
        made = [
            model(timestep=torch.tensor(x), **step_inputs(i), return_dict=False)[0].clone()
            for i, x in enumerate(TIMESTEPS)
        ]
        manager.clear()
    return made


def work(rank: int, port: str, topology: Topology, configs: dict[str, ExperimentConfig]) -> dict[tuple[str, str], bool]:
    """By mode and kind of model, whether all predictions are the same to the last bit."""
    dist.destroy_process_group()  # the harness made one; a run makes its own
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(topology.world_size), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    ranks = t.join(topology, "cpu", timeout_s=120)
    same = {}
    for mode, config in configs.items():
        for kind in tiny_sd.KINDS:
            pairs = zip(ours(config, ranks, kind), upstreams(mode, ranks, kind), strict=True)
            same[mode, kind] = all(torch.equal(one, other) for one, other in pairs)
    t.leave()
    return same


@pytest.mark.parametrize("topology", ["2gpu_nosplit", "4gpu_split"])
def test_groupnorm_upstream_is_upstreams_forward_bit_for_bit(typed: Typed, topology: str) -> None:
    def config(mode: str, preset: str) -> ExperimentConfig:
        words = [preset, f"topology={topology}", "groupnorm=upstream", "height=128", "width=128", "codec=none"]
        words += [f"num_inference_steps={len(TIMESTEPS)}", f"warmup_steps={WARMUP}", "refresh=never"]
        words += [f"preset.sync_mode={mode}"] if preset == "preset=distrifusion" else []
        words += ["preset.gn_sync=false"] if preset == "preset=balanced" else []
        sd = ModelConfig(name=topology, architecture="sd15", source="random")
        return effective(replace(typed(*words, "refresh.period=0"), model=sd))

    configs = {mode: config(mode, preset) for mode, preset in MODES.items()}
    one = configs["full_sync"].topology
    place = Topology(world_size=one.world_size, split_batch=one.split_batch)
    for same in run_ranks(place.world_size, work, pipelines._free_port(), place, configs, timeout=280):
        assert same == {(mode, kind): True for mode in MODES for kind in tiny_sd.KINDS}
