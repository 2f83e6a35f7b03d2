"""Why are left and right learned last? Two measurements on a trained model, by noise level, on the CPU in minutes.

1. What the noised latent gives away: a picture is estimated from it in one step, *without text*, and the classifier
   reads that.
2. What the text is worth: how much the noise prediction's squared error grows when the caption gets one attribute
   wrong.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import torch
from architecture import build_scheduler
from diffusers import StableDiffusionXLPipeline
from pool import held_out_prompts, token_ids
from torch import Tensor
from unet import Denoiser

from otil_exp.shapes import PIPELINE_FOLDER
from otil_exp.shapes.classifier import SceneClassifier, agreement
from otil_exp.shapes.scenes import VOCABULARY, Scene, caption, render

TIMESTEPS = (100, 300, 500, 700, 800, 900, 950, 999)
SCENES = 48


def mistaken(scene: Scene, attribute: str, random: Random) -> Scene:
    """Return the scene with one attribute changed to another value."""
    others = [value for value in VOCABULARY[attribute] if value != getattr(scene, attribute)]
    return replace(scene, **{attribute: random.choice(others)})


def caption_ids(scenes: list[Scene], tokenizer) -> Tensor:
    """Return (B, L) ids of one caption per scene; the same row always draws the same wording."""
    return token_ids([caption(scene, Random(row)) for row, scene in enumerate(scenes)], tokenizer)


@torch.no_grad()
def measure(pipeline: StableDiffusionXLPipeline, classifier: SceneClassifier) -> list[dict[str, float]]:
    """Return one row per timestep: shares read without text, error with the right caption, growth per attribute."""
    denoiser = Denoiser(pipeline.unet, (pipeline.text_encoder, pipeline.text_encoder_2)).eval()
    scale, alpha_bar = pipeline.vae.config.scaling_factor, build_scheduler().alphas_cumprod
    _, scenes = held_out_prompts(SCENES, seed=9)
    latents = pipeline.vae.encode(render(scenes) * 2 - 1).latent_dist.mode() * scale
    right = caption_ids(scenes, pipeline.tokenizer)
    wrong = {
        name: caption_ids([mistaken(s, name, Random(9)) for s in scenes], pipeline.tokenizer) for name in VOCABULARY
    }
    noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(9))
    told, untold = torch.ones(SCENES), torch.zeros(SCENES)
    rows = []
    for timestep in TIMESTEPS:
        signal, spread = alpha_bar[timestep].sqrt(), (1 - alpha_bar[timestep]).sqrt()
        noisy, steps = signal * latents + spread * noise, torch.full((SCENES,), timestep)
        blind = (noisy - spread * denoiser(noisy, steps, right, untold)) / signal
        pictures = (pipeline.vae.decode(blind / scale).sample / 2 + 0.5).clamp(0, 1)
        row = {"timestep": timestep, "signal": signal.item()}
        row |= {f"read {name}": v.float().mean().item() for name, v in agreement(classifier, pictures, scenes).items()}
        row["error"] = (denoiser(noisy, steps, right, told) - noise).square().mean().item()
        for name, ids in wrong.items():
            row[f"cost {name}"] = (denoiser(noisy, steps, ids, told) - noise).square().mean().item() - row["error"]
        print({key: round(value, 5) for key, value in row.items()}, flush=True)
        rows.append(row)
    return rows


def main() -> None:
    """Measure the shipped model and write the rows."""
    parser = argparse.ArgumentParser(description="By noise level: what the latent shows, and what the text is worth.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/shapes_model/position.json"))
    out = parser.parse_args().out
    pipeline = StableDiffusionXLPipeline.from_pretrained(PIPELINE_FOLDER, add_watermarker=False)
    out.write_text(json.dumps(measure(pipeline, SceneClassifier.load()), indent=1) + "\n")


if __name__ == "__main__":
    main()
