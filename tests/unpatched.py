"""distrifuser's own models, driven by hand as its pipeline drives them: the oracle for what upstream computes."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import UNet2DConditionModel

from otil_exp.topology import RankContext
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import DistriUNetPP, DistriUNetTP, PatchParallelismCommManager, imported
from otil_exp.upstream.patches import applied
from tiny_sdxl import tiny_inputs, tiny_unet
from trajectories import TIMESTEPS, WARMUP, step_inputs

with imported():
    from distrifuser.models.naive_patch_sdxl import NaivePatchUNet

MODELS = {"patch": DistriUNetPP, "tensor": DistriUNetTP, "naive_patch": NaivePatchUNet}


@torch.no_grad()
def upstream_picture(
    ranks: RankContext,
    *,
    unet: UNet2DConditionModel | None = None,
    inputs: dict[str, Any] | None = None,
    first: int = 0,
    steps: int = len(TIMESTEPS),
    split_scheme: str = "row",
    **settings: Any,
) -> list[torch.Tensor]:
    """What upstream's own forward predicts at each of so many steps, from `first` on; settings are RankConfig's.
    split_scheme: of naive_patch. unet, inputs: other than the tiny SDXL's.

    Only the two patches without which nothing runs on diffusers 0.42 are applied. Seven tensors a collective, so that
    the race at the start of the queue (patches/comm_queue.py) is not met.
    """
    inputs = inputs or tiny_inputs()
    defaults = {"mode": "full_sync", "warmup_steps": WARMUP, "height": 128, "width": 128}
    config = RankConfig(ranks, guidance=True, comm_checkpoint=7, **defaults | settings)
    config.split_scheme = split_scheme
    with applied("peft_flag", "conv_shortcut"):
        model = MODELS[config.parallelism](unet or tiny_unet(), config)
        manager = PatchParallelismCommManager(config)
        model.set_comm_manager(manager)
        for _ in range(2):  # the first call registers the layers' tensors (pipelines.py:128-143)
            model.set_counter(0)
            model(timestep=torch.zeros((), dtype=torch.long), **inputs, return_dict=False, record=True)
            if manager.buffer_list is None and manager.numel:
                manager.create_buffer()
        model.set_counter(0)
        made = []
        for i, t in list(enumerate(TIMESTEPS[:steps]))[first:]:
            made.append(model(timestep=torch.tensor(t), **step_inputs(inputs, i), return_dict=False)[0].clone())
        manager.clear()
    return made
