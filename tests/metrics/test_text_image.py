"""Text-image scores, against a tiny CLIP with random weights that is saved as the hub's are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from thread_counts import on_threads
from torch import Tensor
from transformers import CLIPConfig, CLIPImageProcessor, CLIPImageProcessorPil, CLIPModel, CLIPProcessor

from otil_exp.metrics.sizes import SHAPES
from otil_exp.metrics.text_image import Clip, check_text_image, clip_score, load_text_image
from otil_exp.shapes.scenes import parse, render
from otil_exp.shapes.text_image import load_tokenizer

CAPTION = "a large red circle on the left of a sky gradient"
LONG = " ".join(["a red circle"] * 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP of 2 + 2 layers saved in half precision, with the shapes tokenizer and a processor for 32 x 32 pixels."""
    path = tmp_path_factory.mktemp("clip")
    tokenizer = load_tokenizer()
    tokenizer.save_pretrained(path)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(path)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "max_position_embeddings": 77,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = CLIPConfig(text_config=tower | text, vision_config=tower | {"image_size": 32, "patch_size": 8})
        CLIPModel(config).half().save_pretrained(path)
    return path


@pytest.fixture
def clip(folder: Path) -> Clip:
    model = load_text_image(str(folder))
    assert isinstance(model, Clip)
    return model


@pytest.fixture(scope="module")
def picture() -> Tensor:
    """40 rows of 48 pixels, floats that are 8-bit values."""
    random = np.random.default_rng(0)
    return torch.from_numpy(random.integers(0, 256, (3, 40, 48)) / 255)


def as_file(picture: Tensor) -> Image.Image:
    return Image.fromarray((picture * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())


def test_is_the_cosine_that_the_model_itself_gives(clip: Clip, folder: Path, picture: Tensor) -> None:
    """transformers' own forward of the picture file and caption: its logits are exp(logit_scale) times the cosine."""
    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    processor = CLIPProcessor(CLIPImageProcessorPil.from_pretrained(folder), load_tokenizer())
    with torch.no_grad():
        logits = model(**processor(text=CAPTION, images=as_file(picture), return_tensors="pt")).logits_per_image
        cosine = float(logits / model.logit_scale.exp())
    assert clip.similarity(picture, CAPTION) == pytest.approx(cosine, abs=1e-6)


def test_pixels_are_scaled_once(clip: Clip, picture: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red reaches the network as (x - mean) / std, white at 1.93 and black at -1.79; scaled twice, white is -1.78."""
    seen = []
    original = clip.model.get_image_features

    def watched(pixel_values: Tensor) -> object:
        seen.append(pixel_values)
        return original(pixel_values=pixel_values)

    monkeypatch.setattr(clip.model, "get_image_features", watched)
    for value in (0.0, 1.0):
        clip.similarity(torch.full((3, 32, 32), value), CAPTION)
    black, white = (float(pixels[0, 0].mean()) for pixels in seen)
    assert white == pytest.approx((1 - 0.48145466) / 0.26862954, abs=1e-4)
    assert black == pytest.approx(-0.48145466 / 0.26862954, abs=1e-4)


@pytest.mark.parametrize("source", ["clip", "shapes"])
def test_bytes_and_0_to_255_are_refused(source: str, folder: Path) -> None:
    model = load_text_image(str(folder) if source == "clip" else SHAPES)
    with pytest.raises(ValueError, match="divided by 255"):
        model.similarity(torch.zeros(3, 32, 32, dtype=torch.uint8), CAPTION)
    with pytest.raises(ValueError, match="values from 200 to 200"):
        model.similarity(torch.full((3, 32, 32), 200.0), CAPTION)


def test_computes_in_float32_without_gradients(clip: Clip, folder: Path, picture: Tensor) -> None:
    assert CLIPModel.from_pretrained(folder).dtype == torch.float16
    assert {parameter.dtype for parameter in clip.model.parameters()} == {torch.float32}
    assert not clip.model.training
    assert isinstance(clip.similarity(picture, CAPTION), float)


def test_negative_cosines_are_kept(clip: Clip, picture: Tensor) -> None:
    """The projections may be turned around: then every cosine changes its sign."""
    before = clip.similarity(picture, CAPTION)
    with torch.no_grad():
        clip.model.visual_projection.weight.neg_()
    assert clip.similarity(picture, CAPTION) == -before
    assert before != 0


def test_long_captions_are_cut_and_counted(clip: Clip, picture: Tensor) -> None:
    tokenizer = load_tokenizer()
    assert len(tokenizer(LONG).input_ids) > 77
    cut = clip.similarity(picture, LONG)
    assert clip.truncated == 1
    clip.similarity(picture, CAPTION)
    assert clip.truncated == 1
    clip.similarity(picture, LONG + " and a blue star")
    assert clip.truncated == 2
    assert cut == clip.similarity(picture, LONG + " and a blue star")


def test_a_caption_of_just_77_tokens_is_not_counted(clip: Clip, picture: Tensor) -> None:
    caption = " ".join(["red"] * 75)
    assert len(load_tokenizer()(caption).input_ids) == 77
    clip.similarity(picture, caption)
    assert clip.truncated == 0
    clip.similarity(picture, caption + " red")
    assert clip.truncated == 1


@pytest.mark.parametrize("source", ["clip", "shapes"])
def test_a_score_depends_on_picture_and_caption_alone(source: str, folder: Path, picture: Tensor) -> None:
    values = set()
    for threads in (1, 2):
        with on_threads(threads):
            model = load_text_image(str(folder) if source == "clip" else SHAPES)
            values.add(model.similarity(picture, CAPTION))
            model.similarity(picture.flip(-1), LONG)
            values.add(model.similarity(picture, CAPTION))
    assert len(values) == 1


def test_names_are_honest(clip: Clip, folder: Path) -> None:
    assert clip.name == str(folder)
    assert load_text_image(SHAPES).name == "shapes_text_image"


def test_the_shapes_model_prefers_what_its_caption_says() -> None:
    model = load_text_image(SHAPES)
    captions = [CAPTION, "a small blue star on a night sky", "a green vase in front of a sandy desert"]
    pictures = render([parse(caption) for caption in captions], 256)
    cosines = np.array([[model.similarity(picture, caption) for caption in captions] for picture in pictures])
    assert (cosines.argmax(1) == [0, 1, 2]).all()
    assert abs(cosines).max() <= 1
    assert model.truncated == 0
    model.similarity(pictures[0], LONG)
    assert model.truncated == 1


def test_a_missing_model_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        FileNotFoundError, match="nobody/nothing is neither .* nor in the cache.*`hf download nobody/nothing"
    ):
        load_text_image("nobody/nothing")
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} is neither a folder with model, tokenizer and processor"):
        load_text_image(str(tmp_path))


@pytest.mark.parametrize("lost", ["tokenizer.json", "preprocessor_config.json"])
def test_a_half_fetched_model_is_refused(lost: str, folder: Path, tmp_path: Path) -> None:
    """Without tokenizer.json transformers makes an empty tokenizer, which reads every caption as the same."""
    for file in folder.iterdir():
        if file.name != lost:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises((FileNotFoundError, ValueError), match="fetch all its files|neither a folder with"):
        load_text_image(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"neither a folder with .*\(no .*{lost}"):
        check_text_image(str(tmp_path))


def test_a_model_is_looked_for_before_pictures_are_made(folder: Path, tmp_path: Path) -> None:
    check_text_image(str(folder))
    for nothing in ("nobody/nothing", "no name of the hub?", str(tmp_path), "x" * 300):
        with pytest.raises(FileNotFoundError, match="neither a folder with"):
            check_text_image(nothing)


def test_weights_that_are_no_clip_are_refused(folder: Path, tmp_path: Path) -> None:
    """transformers fills what is missing with random weights and only warns."""
    from safetensors.torch import load_file, save_file

    for file in folder.iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).symlink_to(file)
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights of a CLIP, such as visual_projection\.weight"):
        load_text_image(str(tmp_path))


def test_the_score_cuts_each_picture_at_zero() -> None:
    """Cosines 0.3, 0.1 and -1 make (30 + 10 + 0) / 3; the mean cosine cut at 0 would be 0."""
    assert clip_score([0.3, 0.1, -1.0]) == pytest.approx(40 / 3)
    with pytest.raises(ValueError, match="at least one"):
        clip_score([])


def test_the_processor_is_pil_s(clip: Clip) -> None:
    """The hub's default resizes with torchvision, whose bicubic differs from OpenAI's."""
    assert isinstance(clip.processor, CLIPImageProcessorPil)
    assert not isinstance(clip.processor, CLIPImageProcessor)
