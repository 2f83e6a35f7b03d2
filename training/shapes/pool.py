"""The training pool: scenes, their pictures, their captions as token ids, their latents; all on the device."""

from dataclasses import dataclass
from random import Random

import torch
from architecture import PICTURE
from diffusers import AutoencoderKL
from torch import Tensor
from transformers import CLIPTokenizer

from otil_exp.shapes.scenes import Scene, caption, held_out_captions, is_held_out, jitter, parse, render, sample_scene

CHUNK = 128
"""Pictures drawn or encoded at a time."""


@dataclass(kw_only=True, slots=True)
class Pool:
    """N scenes of the training combinations."""

    scenes: list[Scene]
    pictures: Tensor
    """(N, 3, 256, 256) uint8."""

    ids: Tensor
    """(N, wordings, L) int64."""


def draw_pool(size: int, wordings: int, tokenizer: CLIPTokenizer, seed: int, device: torch.device) -> Pool:
    """Draw the scenes and everything that does not need a network."""
    random = Random(seed + 1)
    scenes = [sample_scene(random) for _ in range(size)]
    captions = [caption(scene, random) for scene in scenes for _ in range(wordings)]
    pictures = torch.empty(size, 3, PICTURE, PICTURE, dtype=torch.uint8, device=device)
    for start in range(0, size, CHUNK):
        drawn = render(scenes[start : start + CHUNK], PICTURE, device)
        pictures[start : start + CHUNK] = (drawn * 255).round().to(torch.uint8)
    ids = token_ids(captions, tokenizer).view(size, wordings, -1).to(device)
    return Pool(scenes=scenes, pictures=pictures, ids=ids)


def token_ids(captions: list[str], tokenizer: CLIPTokenizer) -> Tensor:
    """Return (B, L) int64, padded as the pipeline pads."""
    return tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids


def as_float(pictures: Tensor) -> Tensor:
    """uint8 0..255 -> float32 in [0, 1]."""
    return pictures.float() / 255


@torch.no_grad()
def encode(vae: AutoencoderKL, pictures: Tensor) -> Tensor:
    """Return the unscaled latents (N, 4, 32, 32) float32 of uint8 pictures (the posterior's mean)."""
    chunks = (as_float(pictures[start : start + CHUNK]) * 2 - 1 for start in range(0, len(pictures), CHUNK))
    return torch.cat([vae.encode(chunk).latent_dist.mode() for chunk in chunks])


def held_out_prompts(count: int, seed: int) -> tuple[list[str], list[Scene]]:
    """Return captions whose attribute combinations no training scene has, and the scenes they ask for."""
    random = Random(seed + 2)
    captions = held_out_captions(count, random)
    scenes = [jitter(parse(text), random) for text in captions]
    assert all(is_held_out(scene) for scene in scenes)
    return captions, scenes
