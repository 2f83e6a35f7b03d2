"""What is wrong with a model's files is said before ranks start. The pipeline is the one that ships, copied."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from otil_exp import fetch
from otil_exp.config import ModelConfig
from otil_exp.models.files import check_model
from otil_exp.shapes import PIPELINE_FOLDER

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5135149760\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline with all its files, that may be broken."""
    return shutil.copytree(PIPELINE_FOLDER, tmp_path / "pipeline")


def said_of(source: object, variant: str | None = None) -> str:
    with pytest.raises((FileNotFoundError, ValueError)) as refused:
        check_model(ModelConfig(name="sdxl", source=str(source), variant=variant))
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"model.source={source}")
    return str(refused.value)


def test_a_whole_pipeline_passes(folder: Path) -> None:
    check_model(ModelConfig(name="sdxl", source=str(folder)))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def index_says(folder: Path, name: str) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {"_class_name": name}))


UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda f: (f / "model_index.json").unlink(), "no model_index.json in there"),
        (lambda f: (f / "model_index.json").write_text("{"), "model_index.json is damaged"),
        (lambda f: (f / "model_index.json").write_text("{}"), "is no pipeline, by its model_index.json"),
        (lambda f: index_says(f, "FluxPipeline"), "is FLUX (FluxPipeline), and what runs here is SDXL"),
        (lambda f: index_says(f, "KandinskyPipeline"), "is KandinskyPipeline, and what runs here is SDXL"),
        (lambda f: shutil.rmtree(f / "tokenizer_2"), "lacks tokenizer_2/tokenizer.json"),
        (lambda f: (f / UNET).unlink(), f"no {UNET}"),
        (lambda f: cut(f / UNET), "cut on its way, fetch it anew"),
        (lambda f: cut(f / "text_encoder/model.safetensors"), "text_encoder/model.safetensors is"),
        (lambda f: (f / UNET).write_text(POINTER), "`git lfs pull`"),
        (lambda f: (f / UNET).write_bytes(b""), "0 bytes, without a whole header"),
        (lambda f: (f / UNET).write_bytes(bytes(200)), "cut or damaged"),
        (
            lambda f: (f / UNET).write_bytes((4).to_bytes(8, "little") + b"no {"),
            "damaged (JSONDecodeError in its header)",
        ),
    ],
)
def test_what_is_broken_is_named(folder: Path, harm: Callable[[Path], object], sentence: str) -> None:
    harm(folder)
    assert sentence in said_of(folder)


def test_sizes_are_compared_with_the_header(folder: Path) -> None:
    size = (folder / UNET).stat().st_size
    cut(folder / UNET)
    assert f"{size - 100:,} bytes long where its header says {size:,}" in said_of(folder)


def test_weights_in_several_files(folder: Path) -> None:
    """Named by the index; diffusers writes the variant before .json, older files have it before .safetensors."""
    (folder / UNET).rename(folder / "unet/a.safetensors")
    index = folder / "unet/diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    check_model(ModelConfig(name="sdxl", source=str(folder)))
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert "1 of 2 parts lack, b.safetensors first" in said_of(folder)


def test_a_safety_checker_which_is_not_fetched_does_not_lack(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    checker = {
        "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
    }
    (folder / "model_index.json").write_text(json.dumps(index | checker))
    check_model(ModelConfig(name="sd15", source=str(folder)))


def test_the_unet_is_needed_in_the_variant(folder: Path) -> None:
    """A user's folder, as save_pretrained makes it, has none, and is nothing to fetch."""
    said = said_of(folder, variant="fp16")
    assert "no unet/diffusion_pytorch_model.fp16.safetensors (model.variant=fp16): use model.variant=null" in said
    (folder / UNET).rename(folder / "unet/diffusion_pytorch_model.fp16-00001-of-00002.safetensors")
    assert said_of(folder).endswith("use model.variant=fp16, which is there")
    shutil.copy(
        folder / "vae/diffusion_pytorch_model.safetensors", folder / "unet/diffusion_pytorch_model.bf16.safetensors"
    )
    assert "use model.variant=bf16 or model.variant=fp16" in said_of(folder)


@pytest.mark.parametrize("source", ["/nowhere/at/all", "./nowhere", "~/nowhere-at-all", "nowhere", "a/b/c"])
def test_a_folder_that_is_not_there_is_named_as_such(source: str) -> None:
    said = said_of(source)
    assert "there is no such folder" in said
    assert "otil-exp-fetch" not in said


def test_a_file_is_no_folder(folder: Path) -> None:
    assert "is a file" in said_of(folder / UNET)


def test_a_hub_id_that_is_not_in_the_cache_says_what_to_run() -> None:
    assert "run `otil-exp-fetch nobody/nothing --variant fp16`" in said_of("nobody/nothing", variant="fp16")


def test_fetch_says_where_it_has_to_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from diffusers import DiffusionPipeline

    def no_network(*_: object, **__: object) -> str:
        raise OSError("no route")

    monkeypatch.setattr(DiffusionPipeline, "download", no_network)
    assert fetch.main(["some/model"]) == 1
    assert "Run this on a machine with internet" in capsys.readouterr().err
