"""The shipped weights: small enough, offline, and they draw and judge what they should."""

from random import Random

import pytest
import torch
from diffusers import StableDiffusionXLPipeline

from otil_exp.shapes import METRICS_FOLDER, PIPELINE_FOLDER
from otil_exp.shapes.classifier import SceneClassifier, agreement
from otil_exp.shapes.scenes import VOCABULARY, caption, parse, render, sample_scene
from otil_exp.shapes.text_image import TextImageModel, load_tokenizer

PROMPT = "a large red circle on the left of a sky gradient"


@pytest.fixture(scope="module")
def pipeline():
    pipeline = StableDiffusionXLPipeline.from_pretrained(PIPELINE_FOLDER, add_watermarker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def renders():
    random = Random(7)
    scenes = [sample_scene(random, held_out=True) for _ in range(64)]
    return scenes, [caption(scene, random) for scene in scenes], render(scenes)


def test_package_data_stays_within_20_mb():
    files = [file for folder in (PIPELINE_FOLDER, METRICS_FOLDER) for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 20e6


def test_every_word_of_the_grammar_is_one_token():
    tokenizer = load_tokenizer()
    assert tokenizer.model_max_length == 32
    prompt = "a vase on a seamless pale grey background"
    assert tokenizer.tokenize(prompt) == [f"{word}</w>" for word in prompt.split()]


def test_a_word_outside_the_grammar_is_spelled_not_lost():
    tokenizer = load_tokenizer()
    assert "zebra" in tokenizer.decode(tokenizer("zebra").input_ids)


def test_the_pipeline_has_the_architecture_of_sdxl_and_divides_over_four(pipeline):
    unet = pipeline.unet.config
    assert unet.addition_embed_type == "text_time"
    assert pipeline.text_encoder_2.config.architectures == ["CLIPTextModelWithProjection"]
    assert all(width % 4 == 0 for width in unet.block_out_channels)
    assert unet.norm_num_groups % 4 == 0
    assert unet.sample_size % 4 == 0
    assert not pipeline.vae.config.force_upcast


def test_everything_loads_in_float32_unless_asked_otherwise(pipeline):
    assert {part.dtype for part in (pipeline.unet, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2)} == {
        torch.float32
    }


def test_a_picture_of_eight_steps_shows_what_its_prompt_says(pipeline):
    picture = pipeline(
        PROMPT, num_inference_steps=8, guidance_scale=5.0, generator=torch.Generator().manual_seed(0), output_type="pt"
    ).images
    assert picture.shape == (1, 3, 256, 256)
    assert picture.isfinite().all()
    right = agreement(SceneClassifier.load(), picture.float(), [parse(PROMPT)])
    assert all(right[name].item() for name in ("shape", "colour", "position", "background"))


def test_the_classifier_reads_unseen_renders(renders):
    scenes, _, pictures = renders
    right = agreement(SceneClassifier.load(), pictures, scenes)
    assert all(right[name].float().mean() >= 0.95 for name in VOCABULARY)


def test_text_image_similarity_tells_right_captions_from_wrong_ones(renders):
    _, captions, pictures = renders
    model, tokenizer = TextImageModel.load(), load_tokenizer()
    matched = model.similarity(pictures, captions, tokenizer)
    mismatched = model.similarity(pictures, captions[1:] + captions[:1], tokenizer)
    assert matched.mean() > 0.9
    assert mismatched.mean() < 0.3
