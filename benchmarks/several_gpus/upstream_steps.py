"""distrifuser as published on the same GPUs: its own config, its own forward, CUDA graphs of its kinds of step."""

from __future__ import annotations

import copy
import gc
from contextlib import ExitStack
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import distributed as dist

from benchmarks.several_gpus.plan import Plan, keep
from otil_exp.launch import launch
from otil_exp.models.architecture import SDXL
from otil_exp.selftest.clock import milliseconds
from otil_exp.upstream.imports import DistriConfig, DistriUNetPP, DistriUNetTP, PatchParallelismCommManager, imported
from otil_exp.upstream.patches import conv_shortcut, peft_flag

with imported():
    from distrifuser.models.naive_patch_sdxl import NaivePatchUNet

COUNTERS = {"warmup": 0, "steady": 6}
"""Kind of step -> the counter at which upstream's forward makes one (warmup_steps=4)."""


def upstream_steps(plan: Plan) -> None:
    """Time the steps of distrifuser's methods at 1024², and at 2048² while there is time."""
    assert plan.device == "cuda", "distrifuser runs on CUDA alone: leave the part `upstream` out"
    launch(_steps, plan.world_size, plan)


def _steps(plan: Plan) -> None:
    whole = DistriConfig(height=1024, width=1024, split_batch=False, warmup_steps=4, use_cuda_graph=True)
    assert whole.world_size == plan.world_size, "it fell back to one GPU"
    split = _split(whole)
    with ExitStack() as stack:
        stack.enter_context(peft_flag())
        stack.enter_context(conv_shortcut())
        if whole.rank == 0:
            keep("upstream", "whole UNet on one GPU", _whole(whole.device), plan)
        dist.barrier()
        for pixels in (1024, 2048):
            for mode in ("no_sync", "corrected_async_gn", "full_sync"):
                _time(f"{mode} nosplit {pixels}", DistriUNetPP, _with(whole, pixels, mode=mode), plan)
            if pixels == 1024:
                _time(f"naive_patch nosplit {pixels}", NaivePatchUNet, _with(whole, pixels, "naive_patch"), plan)
                _time(f"tensor nosplit {pixels}", DistriUNetTP, _with(whole, pixels, "tensor"), plan)
                for mode in ("no_sync", "corrected_async_gn") if plan.world_size > 2 else ("no_sync",):
                    _time(f"{mode} split {pixels}", DistriUNetPP, _with(split, pixels, mode=mode), plan)
    dist.destroy_process_group()


def _split(whole: Any) -> Any:
    """The config of a split batch; a second construction would fall back to one GPU, so the groups are made here."""
    split, half = copy.copy(whole), whole.world_size // 2
    split.split_batch, split.n_device_per_batch = True, half
    halves = [dist.new_group([*range(i * half, (i + 1) * half)]) for i in range(2)]
    pairs = [dist.new_group([i, i + half]) for i in range(half)]
    split.batch_group, split.split_group = halves[split.batch_idx()], pairs[split.split_idx()]
    return split


def _with(base: Any, pixels: int, parallelism: str = "patch", mode: str = "full_sync") -> Any:
    config = copy.copy(base)
    config.height, config.width, config.parallelism, config.mode = pixels, pixels, parallelism, mode
    config.split_scheme = "row"
    return config


def _time(name: str, kind: Any, config: Any, plan: Plan) -> None:
    """Keep a method's ms by kind of step, and leave the memory free."""
    times = _step_times(kind, config)
    if config.rank == 0:
        keep("upstream", name, times, plan)
    gc.collect()
    torch.cuda.empty_cache()
    dist.barrier()


@torch.no_grad()
def _step_times(kind: Any, config: Any) -> dict[str, float]:
    """Build, warm up and capture as its pipelines do; ms by kind of step."""
    unet, inputs = kind(_unet(config.device), config), _inputs(config.device, config.height)

    def call(counter: int) -> Any:
        unet.set_counter(counter)
        return unet(**inputs, return_dict=False, record=True)

    manager = None
    if config.n_device_per_batch > 1 and kind is DistriUNetPP:
        manager = PatchParallelismCommManager(config)
        unet.set_comm_manager(manager)
        call(0)
        if manager.numel > 0:
            manager.create_buffer()
    call(0)
    if manager is not None:
        manager.clear()
    kinds = COUNTERS if kind is DistriUNetPP else {"steady": 0}
    times = {}
    for label, counter in kinds.items():
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call(counter)
        times[label] = round(milliseconds(graph.replay, 10, config.device), 4)
    return times


@torch.no_grad()
def _whole(device: torch.device) -> dict[str, float]:
    """The whole UNet, batch 2, 1024², plain diffusers in a CUDA graph."""
    unet = _unet(device)
    inputs = _inputs(device, 1024)
    for _ in range(2):
        unet(**inputs, return_dict=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        unet(**inputs, return_dict=False)
    return {"steady": round(milliseconds(graph.replay, 10, device), 4)}


def _unet(device: torch.device) -> UNet2DConditionModel:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float16)
    with torch.device(device):
        unet = UNet2DConditionModel(**SDXL.unet)
    torch.set_default_dtype(torch.float32)
    return unet.eval().requires_grad_(False)


def _inputs(device: torch.device, pixels: int) -> dict[str, Any]:
    """One step's inputs of a batch of two square pictures, seeded alike on all ranks."""
    generator = torch.Generator(device).manual_seed(1)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float16)

    ids = torch.tensor([[pixels, pixels, 0, 0, pixels, pixels]] * 2, device=device, dtype=torch.float16)
    return {
        "sample": noise(2, 4, pixels // 8, pixels // 8),
        "timestep": torch.full((2,), 500, device=device),
        "encoder_hidden_states": noise(2, 77, 2048),
        "added_cond_kwargs": {"text_embeds": noise(2, 1280), "time_ids": ids},
    }
