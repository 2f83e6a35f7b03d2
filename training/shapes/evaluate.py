"""Does the model follow its prompts? Figures by the classifier, Frechet distances, text-image similarity, a sheet."""

import time
from collections.abc import Sequence
from random import Random

import torch
from diffusers import DiffusionPipeline
from PIL import Image
from pool import held_out_prompts
from torch import Tensor

from otil_exp.shapes.classifier import SceneClassifier, agreement
from otil_exp.shapes.scenes import Scene, jitter, render
from otil_exp.shapes.text_image import TextImageModel

GUIDANCE = 5.0


@torch.no_grad()
def generate(pipeline: DiffusionPipeline, captions: Sequence[str], steps: int, seed: int, batch: int = 100) -> Tensor:
    """Return pictures (B, 3, 256, 256) float32 in [0, 1]; each has its own seed, so the batch size changes nothing."""
    device, parts = pipeline.unet.device, []
    for start in range(0, len(captions), batch):
        chosen = list(captions[start : start + batch])
        generators = [torch.Generator().manual_seed(seed + start + row) for row in range(len(chosen))]
        drawn = pipeline(
            chosen, num_inference_steps=steps, guidance_scale=GUIDANCE, generator=generators, output_type="pt",
            height=256, width=256,
        ).images  # fmt: skip
        parts.append(drawn.float().to(device))
    return torch.cat(parts)


def frechet(first: Tensor, second: Tensor) -> float:
    """Frechet distance between Gaussians fitted to features (N, d) and (M, d); float64."""
    first, second = first.double().cpu(), second.double().cpu()
    centred = [(f - f.mean(0)) / (len(f) - 1) ** 0.5 for f in (first, second)]
    shared = torch.linalg.svdvals(centred[0] @ centred[1].T).sum()
    spread = sum(c.square().sum() for c in centred)
    return ((first.mean(0) - second.mean(0)).square().sum() + spread - 2 * shared).item()


def shares(right: dict[str, Tensor]) -> dict[str, float]:
    """Return the share of pictures right per attribute, and of pictures right in every attribute."""
    everything = torch.stack(list(right.values())).all(0)
    return {name: value.float().mean().item() for name, value in {**right, "all five": everything}.items()}


@torch.no_grad()
def evaluate(
    pipeline: DiffusionPipeline,
    classifier: SceneClassifier,
    text_image: TextImageModel,
    count: int,
    seed: int,
    log,
    samplers: Sequence[tuple[str, object, int]],
) -> dict:
    """Return the figures for `count` held-out captions under each (name, scheduler, steps)."""
    captions, scenes = held_out_prompts(count, seed)
    device = pipeline.unet.device
    renders = render(scenes, 256, device)
    redrawn = render([jitter(scene, Random(seed + row)) for row, scene in enumerate(scenes)], 256, device)
    others = render(held_out_prompts(count, seed + 100)[1], 256, device)
    features = classifier.features(renders)
    shuffled = captions[1:] + captions[:1]
    tokenizer = pipeline.tokenizer
    figures: dict = {
        "captions": count,
        "frechet_features": features.shape[1],
        "frechet_renders_of_the_same_captions": frechet(classifier.features(redrawn), features),
        "frechet_renders_of_other_captions": frechet(classifier.features(others), features),
        "renders": shares(agreement(classifier, renders, scenes)),
        "renders_text_image": text_image.similarity(renders, captions, tokenizer).mean().item(),
        "renders_text_image_mismatched": text_image.similarity(renders, shuffled, tokenizer).mean().item(),
        "generated": {},
    }
    for name, scheduler, steps in samplers:
        pipeline.scheduler = scheduler
        start = time.perf_counter()
        pictures = generate(pipeline, captions, steps, seed)
        figures["generated"][name] = judge(pictures, captions, scenes, features, classifier, text_image, tokenizer)
        log(f"{name}: {summary(figures['generated'][name])} ({time.perf_counter() - start:.1f} s)")
    return figures


def judge(pictures, captions, scenes, render_features, classifier, text_image, tokenizer) -> dict:
    """Return the figures of one set of generated pictures."""
    return {
        "right": shares(agreement(classifier, pictures, scenes)),
        "frechet": frechet(classifier.features(pictures), render_features),
        "text_image": text_image.similarity(pictures, captions, tokenizer).mean().item(),
        "text_image_mismatched": text_image.similarity(pictures, captions[1:] + captions[:1], tokenizer).mean().item(),
        "finite": bool(pictures.isfinite().all()),
    }


def summary(figures: dict) -> str:
    """One line of `judge`'s figures."""
    right = " ".join(f"{name} {value:.3f}" for name, value in figures["right"].items())
    return (f"right: {right}; frechet {figures['frechet']:.2f}; "
            f"text-image {figures['text_image']:.3f} / {figures['text_image_mismatched']:.3f}")  # fmt: skip


def sheet(pictures: Tensor, columns: int, side: int = 128) -> Image.Image:
    """Lay pictures (B, 3, H, W) in [0, 1] out as a grid of small ones."""
    small = torch.nn.functional.interpolate(pictures.float().cpu(), (side, side), mode="area")
    rows = [torch.cat(list(small[start : start + columns]), 2) for start in range(0, len(small), columns)]
    grid = (torch.cat(rows, 1).clamp(0, 1) * 255).round().to(torch.uint8)
    return Image.fromarray(grid.permute(1, 2, 0).numpy())


def probe_scenes(count: int, seed: int) -> tuple[list[str], list[Scene]]:
    """Return the captions that are drawn during training; others than the final ones."""
    return held_out_prompts(count, seed + 50)
