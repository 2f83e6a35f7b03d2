"""What a step of SDXL sends, counted without a GPU: shapes alone (the meta device), and peers that are not there.

    python -m benchmarks.link_projection.count 2 full_sync otil "otil_context k=quarter" >> messages.csv

One line an operation of rank 0: side, world_size, method, then the columns of a run folder's messages.csv.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

import torch
from diffusers import UNet2DConditionModel
from hydra import compose, initialize_config_dir

from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.fake_peers import among_fake_peers
from otil_exp.methods.geometry import latent_size, steps_of, topology_of
from otil_exp.methods.rooms import step_of
from otil_exp.models.architecture import SDXL
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.schema import register_schema
from otil_exp.traffic import Message, TrafficCounter

DEVICE = torch.device("meta")
SHORT = ("num_inference_steps=12", "warmup_steps=1", "height=1024", "width=1024")
RENEWED = ("otil", "balanced")
"""Presets with refresh steps: every fifth one, so that a short picture has steps of every kind."""


def main() -> None:
    world_size, *methods = sys.argv[1:]
    for method in methods:
        for kind, (steps, messages) in counted(method, int(world_size)).items():
            for message, count in messages.items():
                row = (1024, world_size, method, kind, *message[:3], int(message.waits), f"{count / steps:.6g}")
                print(*row, sep=",", flush=True)


def counted(method: str, world_size: int) -> dict[str, tuple[int, Counter[Message]]]:
    """By kind of step, how many there were and what rank 0 sent in them, at 1024 x 1024 in fp16."""
    config = _composed(method, world_size)
    with DEVICE:
        unet = UNet2DConditionModel(**SDXL.unet).half().eval().requires_grad_(False)
    traffic, steps = TrafficCounter(), steps_of(config)
    height, width = latent_size(config)
    rank_unet = RankUNet(
        step_of(config).build(config, among_fake_peers(topology_of(config), DEVICE), unet, traffic),
        (2, 4, height, width),
    )
    latents = torch.zeros(1, 4, height, width, device=DEVICE, dtype=torch.half)
    inputs = {
        "encoder_hidden_states": _half(2, 77, 2048),
        "added_cond_kwargs": {"text_embeds": _half(2, 1280), "time_ids": _half(2, 6)},
    }
    timestep = torch.ones((), device=DEVICE)
    rank_unet.prepare(sample=torch.cat([latents] * 2), timestep=timestep, **inputs)
    numbers, sent = Counter[str](), defaultdict[str, Counter[Message]](Counter)
    with traffic.installed(), torch.no_grad():
        traffic.take()
        rank_unet.begin(steps)
        for step in steps:
            rank_unet(torch.cat([latents] * 2), timestep, **inputs)
            rank_unet.exchange(latents, step)
            numbers[step.kind] += 1
            sent[step.kind].update(traffic.take().messages)
        rank_unet.finish()
    rank_unet.close()
    return {kind: (numbers[kind], sent[kind]) for kind in numbers}


def _composed(method: str, world_size: int) -> ExperimentConfig:
    """An effective config; fp32, as the device is called cpu here, though nothing is computed."""
    register_schema()
    preset, *settings = method.split()
    where = ("model=sdxl_random", "model.dtype=float32", "device=cpu", "metrics=none", "prompts.limit=1")
    renewal = ("refresh=every5",) if preset in RENEWED else ()
    topology = f"topology={world_size}gpu_nosplit"
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        composed = compose("config", [f"preset={preset}", topology, *settings, *SHORT, *where, *renewal])
    return prepare(composed).effective


def _half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, device=DEVICE, dtype=torch.half)


if __name__ == "__main__":
    main()
