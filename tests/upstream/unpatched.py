"""distrifuser's own models, driven by hand as its pipeline drives them: the oracle for what upstream computes."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import UNet2DConditionModel

from otil_exp.topology import RankContext
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import DistriUNetPP, DistriUNetTP, PatchParallelismCommManager
from otil_exp.upstream.patches import applied

# Not among the names that otil_exp needs, so imported here; otil_exp.upstream.imports has made it importable.
from otil_exp.upstream.imports import imported  # isort: skip

with imported():
    from distrifuser.models.naive_patch_sdxl import NaivePatchUNet

MODELS = {"patch": DistriUNetPP, "tensor": DistriUNetTP, "naive_patch": NaivePatchUNet}


def upstream_trajectory(
    unet: UNet2DConditionModel, ranks: RankContext, inputs: dict[str, Any], timesteps: list[float], **settings: Any
) -> list[torch.Tensor]:
    """Predictions of upstream's forward at each timestep; settings are RankConfig's.

    Only the two patches without which nothing runs on diffusers 0.42 are applied. Seven tensors a collective, so that
    the race at the start of the queue (patches/comm_queue.py) is not met.
    """
    config = RankConfig(ranks, guidance=True, comm_checkpoint=7, **settings)
    with applied("peft_flag", "conv_shortcut"):
        model = MODELS[config.parallelism](unet, config)
        zero = torch.zeros((), dtype=torch.long)
        manager = PatchParallelismCommManager(config)
        model.set_comm_manager(manager)
        for _ in range(2):  # the first call registers the layers' tensors (pipelines.py:128-143)
            model.set_counter(0)
            model(timestep=zero, **inputs, return_dict=False, record=True)
            if manager.buffer_list is None and manager.numel:
                manager.create_buffer()
        model.set_counter(0)
        outputs = [model(timestep=torch.tensor(t), **inputs, return_dict=False)[0].clone() for t in timesteps]
        manager.clear()
    return outputs
