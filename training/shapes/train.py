"""Make the shapes model from nothing: `python training/shapes/train.py --out outputs/shapes_training`.

Stages: tokenizer, autoencoder, classifier, text-image similarity, UNet with text encoders, figures. A stage whose
result lies in the output folder is not repeated; `--continue-unet` trains the UNet found there further.
`--smoke` runs every stage for a few steps.
"""

import argparse
import copy
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import diffusers
import torch
import transformers
from architecture import assemble, build_text_encoders, build_unet
from classifier import train_classifier
from config import PLAIN, TrainConfig, by_time, smoke_config
from diffusers import (
    AutoencoderKL,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from evaluate import evaluate, generate, probe_scenes, shares, sheet
from log import Log
from pool import Pool, draw_pool, encode
from safetensors.torch import save_file
from text_image import train_text_image
from tokenizer import train_tokenizer
from torch import Tensor
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer
from unet import Denoiser, train_unet
from vae import train_vae

from otil_exp.shapes.classifier import SceneClassifier, agreement
from otil_exp.shapes.text_image import TextImageModel

DEMO = (
    "a vase on a seamless pale grey background",
    "a large white vase in the middle of a seamless pale grey background",
    "a large red circle on the left of a sky gradient",
    "a small blue square on the right of a flat grey field",
    "a large yellow triangle in the middle of a sunset gradient",
    "a small purple vase on the left of a meadow gradient",
    "a large green ring over a calm sea, on the right",
    "a photo of an orange star in front of a night sky",
)
"""The first row of the sample sheet, and its last."""


Reader = Callable[[Denoiser, int], None]
Saver = Callable[[Denoiser], None]


class Training:
    """The stages, each of which reads and writes the output folder."""

    def __init__(self, out: Path, config: TrainConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.pipeline_folder, self.metrics_folder, self.out = out / "weights", out / "weights_metrics", out
        self.log = Log(out / "training.log")
        versions = (
            f"torch {torch.__version__}, diffusers {diffusers.__version__}, transformers {transformers.__version__}"
        )
        machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
        self.log(f"{machine}, Python {platform.python_version()}, {versions}")
        self.log(f"config {json.dumps(asdict(config))}")

    def tokenizer(self) -> CLIPTokenizer:
        """Train the tokenizer, or load it; the pipeline holds it twice, as SDXL does."""
        folder = self.pipeline_folder / "tokenizer"
        if not folder.exists():
            train_tokenizer(folder, self.config.seed)
        tokenizer = CLIPTokenizer.from_pretrained(folder)
        self.log(f"tokenizer: {len(tokenizer)} tokens")
        return tokenizer

    def autoencoder(self, pool: Pool) -> AutoencoderKL:
        """Train the autoencoder, or load it."""
        folder = self.pipeline_folder / "vae"
        if folder.exists():
            return AutoencoderKL.from_pretrained(folder).float().to(self.device).eval()
        vae = train_vae(pool, self.config.vae, self.config.seed, self.device, self.log)
        save_half(vae, folder)
        return vae.requires_grad_(False)

    def classifier(self, pool: Pool) -> SceneClassifier:
        """Train the classifier, or load it."""
        path = self.metrics_folder / "classifier.safetensors"
        if path.exists():
            return SceneClassifier.load(path).to(self.device)
        classifier = train_classifier(pool, self.config.classifier, self.config.seed, self.device, self.log)
        save_state(classifier, path)
        return classifier

    def text_image(self, pool: Pool, tokenizer: CLIPTokenizer) -> TextImageModel:
        """Train the text-image similarity, or load it."""
        path = self.metrics_folder / "text_image.safetensors"
        if path.exists():
            return TextImageModel.load(path).to(self.device)
        model = train_text_image(pool, tokenizer, self.config.text_image, self.config.seed, self.device, self.log)
        save_state(model, path)
        return model

    def denoiser(self, tokenizer: CLIPTokenizer) -> tuple[Denoiser, bool]:
        """Build the UNet and text encoders, or load them; tell whether they were there."""
        folder = self.pipeline_folder
        if (folder / "unet").exists():
            unet = UNet2DConditionModel.from_pretrained(folder / "unet")
            first = CLIPTextModel.from_pretrained(folder / "text_encoder")
            second = CLIPTextModelWithProjection.from_pretrained(folder / "text_encoder_2")
            return Denoiser(unet, (first, second)).float().to(self.device), True
        torch.manual_seed(self.config.seed)
        denoiser = Denoiser(build_unet(), build_text_encoders(tokenizer)).to(self.device)
        denoiser.unet.to(memory_format=torch.channels_last)
        return denoiser, False

    def train_denoiser(self, denoiser: Denoiser, latents: Tensor, ids: Tensor, read: Reader, save: Saver) -> int:
        """Train UNet and text encoders on latents and ids; save the averaged weights. Returns the number of steps."""
        config = self.config

        def probe(averaged: Denoiser, step: int) -> None:
            read(averaged, step)
            if step % config.probe_every == 0:
                save(averaged)

        averaged, steps = train_unet(
            denoiser, latents, ids, config.unet, config.diffusion, seed=config.seed, probe=probe, log=self.log,
            probe_at=lambda step: step % config.probe_every == 0 or step in config.probe_early,
        )  # fmt: skip
        save(averaged)
        return steps

    def compare_plain(self, denoiser: Denoiser, steps: int, latents: Tensor, ids: Tensor, read: Reader) -> None:
        """Train the same start with the usual objective for a while, to see what ours changes. Nothing is saved."""
        self.log("the plain objective from the same start:")
        stage, early = replace(self.config.unet, steps=steps), (*self.config.probe_early, self.config.probe_every)
        train_unet(
            denoiser, latents, ids, stage, PLAIN, seed=self.config.seed, probe=read, log=self.log,
            probe_at=lambda step: step in early, stop=self.config.plain_steps,
        )  # fmt: skip

    def prompt_reader(self, vae: AutoencoderKL, tokenizer: CLIPTokenizer, classifier: SceneClassifier) -> Reader:
        """Return a function that logs how well a half-trained denoiser follows held-out prompts."""
        captions, scenes = probe_scenes(self.config.probe_captions, self.config.seed)

        def read(denoiser: Denoiser, step: int) -> None:
            pipeline = assemble(vae, denoiser.unet, tuple(denoiser.text_encoders), tokenizer)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                pictures = generate(pipeline, captions, 20, self.config.seed)
            right = shares(agreement(classifier, pictures, scenes))
            self.log(f"reading at step {step}: " + " ".join(f"{name} {value:.3f}" for name, value in right.items()))

        return read

    def save(self, vae: AutoencoderKL, denoiser: Denoiser, tokenizer: CLIPTokenizer) -> None:
        """Save the whole pipeline in half precision."""
        vae, denoiser = (copy.deepcopy(module).half() for module in (vae, denoiser))
        pipeline = assemble(vae, denoiser.unet, tuple(denoiser.text_encoders), tokenizer)
        pipeline.save_pretrained(self.pipeline_folder, safe_serialization=True)
        for name in ("text_encoder", "text_encoder_2"):
            load_in_float32(self.pipeline_folder / name / "config.json")

    def figures(self, classifier: SceneClassifier, text_image: TextImageModel) -> None:
        """Load the saved pipeline as a user would (half precision on a GPU) and judge it."""
        half = torch.float16 if self.device.type == "cuda" else torch.float32
        pipeline = StableDiffusionXLPipeline.from_pretrained(self.pipeline_folder, dtype=half, add_watermarker=False)
        pipeline.to(self.device).set_progress_bar_config(disable=True)
        config = pipeline.scheduler.config
        ddim = pipeline.scheduler
        samplers = (
            ("ddim 50", ddim, 50),
            ("ddim 20", ddim, 20),
            ("ddim 8", ddim, 8),
            ("euler 20", EulerDiscreteScheduler.from_config(config), 20),
            ("dpm-solver++ 20", DPMSolverMultistepScheduler.from_config(config), 20),
        )
        figures = evaluate(
            pipeline, classifier, text_image, self.config.evaluate_captions, self.config.seed, self.log, samplers
        )
        (self.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
        self.draw_sheet(pipeline, ddim)

    def draw_sheet(self, pipeline: StableDiffusionXLPipeline, scheduler) -> None:
        """Write samples.png: eight fixed prompts and held-out captions at 50 steps, then the eight at 8 steps."""
        pipeline.scheduler = scheduler
        captions, _ = probe_scenes(self.config.sheet_captions, self.config.seed)
        rows = [generate(pipeline, [*DEMO, *captions], 50, 0), generate(pipeline, DEMO, 8, 0)]
        sheet(torch.cat(rows), columns=8).save(self.out / "samples.png", optimize=True)


def save_half(module: torch.nn.Module, folder: Path) -> None:
    """Save a copy of a diffusers or transformers module in float16."""
    copy.deepcopy(module).half().save_pretrained(folder, safe_serialization=True)


def load_in_float32(config: Path) -> None:
    """Make transformers load half-precision weights in float32 unless told otherwise, as diffusers loads the UNet."""
    fields = json.loads(config.read_text())
    config.write_text(json.dumps({**fields, "dtype": "float32"}, indent=2) + "\n")


def save_state(module: torch.nn.Module, path: Path) -> None:
    """Save a module's weights in float16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.half().contiguous() for name, value in module.state_dict().items()}, path)


def main() -> None:
    """Run the stages that are not done yet."""
    parser = argparse.ArgumentParser(description="Make the shapes model from nothing.")
    parser.add_argument("--out", type=Path, default=Path("outputs/shapes_training"))
    parser.add_argument("--smoke", action="store_true", help="a few steps of every stage")
    parser.add_argument("--continue-unet", action="store_true", help="train the UNet found in --out further")
    parser.add_argument("--by-time", action="store_true", help="stages last their seconds, not their steps")
    parser.add_argument("--no-compile", action="store_true", help="train the UNet eagerly")
    parser.add_argument("--compare-plain", action="store_true", help="then train with the usual objective for a while")
    arguments = parser.parse_args()
    config = smoke_config() if arguments.smoke else TrainConfig()
    config = by_time(config) if arguments.by_time else config
    config.compile = config.compile and not arguments.no_compile

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    training = Training(arguments.out, config, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    tokenizer = training.tokenizer()
    pool = draw_pool(config.scenes, config.wordings, tokenizer, config.seed, training.device)
    training.log(f"pool: {len(pool.scenes)} scenes")
    vae = training.autoencoder(pool)
    classifier = training.classifier(pool)
    text_image = training.text_image(pool, tokenizer)
    denoiser, found = training.denoiser(tokenizer)
    if not found or arguments.continue_unet:
        start = copy.deepcopy(denoiser.state_dict())
        latents = encode(vae, pool.pictures) * vae.config.scaling_factor
        training.log(f"latents {tuple(latents.shape)}, mean {latents.mean():.3f}, sd {latents.std():.3f}")
        read = training.prompt_reader(vae, tokenizer, classifier)
        if config.compile and training.device.type == "cuda":
            denoiser.unet.compile()
        steps = training.train_denoiser(
            denoiser, latents, pool.ids, read, lambda averaged: training.save(vae, averaged, tokenizer)
        )
    training.figures(classifier, text_image)
    if arguments.compare_plain:
        denoiser.load_state_dict(start)
        training.compare_plain(denoiser, steps, latents, pool.ids, read)


if __name__ == "__main__":
    main()
