"""What is said of published models is what their authors published; rules on sizes follow from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

import tiny_sd
from composing import Compose, Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.prepare import prepare
from otil_exp.cells.rules import validate
from otil_exp.config import ModelConfig
from otil_exp.models.architecture import ARCHITECTURES, PUBLISHED, architecture_of, check_architecture
from otil_exp.models.families import FAMILIES
from otil_exp.prompts import Prompt
from otil_exp.run_folder.signature import picture_key, signature

PARAMETERS = {
    "sdxl": (2_567_463_684, 83_653_863, 123_060_480),
    "sd15": (859_520_964, 83_653_863, 123_060_480),
    "sd21": (865_910_724, 83_653_863, 340_387_840),
}
"""Of the published checkpoints: UNet, VAE, (first) text encoder."""


def parameters(make: Callable[[], torch.nn.Module]) -> int:
    with torch.device("meta"):
        return sum(one.numel() for one in make().parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_as_many_parameters_as_the_published_ones(name: str) -> None:
    networks = PUBLISHED[name]
    text = CLIPTextConfig(**networks.text[0])
    made = (
        parameters(lambda: UNet2DConditionModel(**networks.unet)),
        parameters(lambda: AutoencoderKL(**networks.vae)),
        parameters(lambda: CLIPTextModel(text)),
    )
    assert made == PARAMETERS[name]


def test_every_class_of_pipelines_is_a_family() -> None:
    assert {networks.pipeline for networks in PUBLISHED.values()} == set(FAMILIES)
    assert all(family.pipeline.__name__ == name for name, family in FAMILIES.items())


@pytest.mark.parametrize(
    ("name", "unit", "lowest"), [("sdxl", 32, 4), ("shapes", 32, 4), ("sd15", 64, 8), ("sd21", 64, 8)]
)
def test_a_slice_has_whole_rows_on_every_level(name: str, unit: int, lowest: int) -> None:
    networks = architecture_of(ModelConfig(name=name, architecture=name, source="package"))
    assert (networks.slice_unit, networks.lowest, networks.vae_factor) == (unit, lowest, 8)


RANDOM = ("model=sd15_random", "model.dtype=float32")

MISTAKES = [
    (["height=448", "topology=2gpu_nosplit"], "needs a multiple of 128): use height=384 or height=512"),
    (["height=768", "topology=8gpu_nosplit"], "needs a multiple of 512): use height=512 or height=1024"),
    (["height=512", "topology=8gpu_nosplit", "preset=naive_patch", "width=448"], None),
    (["preset=naive_patch", "preset.split_scheme=col", "width=448", "topology=2gpu_nosplit"], "width=384 or width=512"),
    (["height=516"], "is not a multiple of 8: use height=512 or height=520"),
    (["preset=otil_context", "preset.context.block_size=16", "topology=8gpu_nosplit"], "block_size="),
    (["preset=otil_context", "height=768", "width=768", "preset.context.block_size=6"], "1, 2, 4 or a multiple of 8"),
    (["preset=otil_context", "width=480"], "(a multiple of 64): use width=448 or width=512"),
    (["preset=tensor", "topology=3gpu_nosplit"], "do not divide"),
    (["preset=tensor", "topology=8gpu_nosplit"], None),
    (["model.architecture=sd14"], "use one of sdxl, sd15, sd21, shapes, files"),
]


@pytest.mark.parametrize(("overrides", "sentence"), MISTAKES, ids=lambda value: " ".join(value or ["allowed"]))
def test_rules_on_sizes_are_those_of_four_levels(typed: Typed, overrides: list[str], sentence: str | None) -> None:
    one_rank = (
        [] if any(word.startswith(("topology", "preset=otil_context")) for word in overrides) else ["topology=1gpu"]
    )
    config = typed(*RANDOM, *one_rank, *overrides)
    if sentence is None:
        validate(config)
        return
    with pytest.raises(ValueError, match=".") as refused:
        validate(config)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("model", "size", "guidance"),
    [("sdxl", 1024, 5.0), ("sd15", 512, 7.5), ("sd21", 768, 7.5), ("sd15_random", 512, 7.5), ("sd21_random", 768, 7.5)],
)
def test_a_model_brings_its_size_and_guidance(typed: Typed, model: str, size: int, guidance: float) -> None:
    config = typed(f"model={model}")
    assert (config.height, config.width, config.guidance_scale) == (size, size, guidance)
    assert typed(f"model={model}", "guidance_scale=3").guidance_scale == 3


def test_random_weights_of_other_networks_are_another_run_and_other_pictures(typed: Typed) -> None:
    size = ("height=512", "width=512", "guidance_scale=5")
    one, other = (effective(typed(f"model={name}_random", *size)) for name in ("sd15", "sdxl"))
    prompts = [Prompt(index=0, text="a cat", seed=0)]
    assert signature(one, prompts) != signature(other, prompts)
    assert picture_key(one) != picture_key(other)


@pytest.mark.parametrize("architecture", ["shapes", "files"])
def test_random_weights_of_what_is_not_published_are_refused(composed: Compose, architecture: str) -> None:
    with pytest.raises(ValueError, match="model.architecture=sdxl or sd15 or sd21"):
        prepare(composed("device=cpu", *RANDOM, f"model.architecture={architecture}"))


def test_files_of_another_architecture_are_refused_before_ranks_start(composed: Compose, tmp_path: Path) -> None:
    tiny_sd.tiny_pipeline("sd15").save_pretrained(tmp_path / "sd15")
    words = [word for word in tiny_sd.words("sd15", tmp_path) if "architecture" not in word]
    with pytest.raises(ValueError, match=r"\(16, 32, 32, 32\), .* \(320, 640, 1280, 1280\), .*architecture=files"):
        prepare(composed("device=cpu", *words))
    assert prepare(composed("device=cpu", *tiny_sd.words("sd15", tmp_path))).effective.height == 512


def test_a_pipeline_of_the_other_class_is_told_with_its_models(composed: Compose, tmp_path: Path) -> None:
    """Before its files are looked at: they lack the variant that the model asks for, too."""
    tiny_sd.tiny_pipeline("sd15").save_pretrained(tmp_path / "sd15")
    with pytest.raises(
        ValueError, match=r"is Stable Diffusion 1 or 2 .*sdxl is SDXL .*use model=sd15 or model=sd21 with this source"
    ):
        prepare(composed("device=cpu", "model=sdxl", f"model.source={tmp_path / 'sd15'}", "model.dtype=float32"))


def test_files_of_another_class_of_pipelines_are_refused(tmp_path: Path) -> None:
    for name in ("unet", "vae"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"block_out_channels": [4, 8]}')
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    model = ModelConfig(name="flux", architecture="files", source=str(tmp_path))
    with pytest.raises(ValueError, match=r"is FLUX \(FluxPipeline\), and what runs here is SDXL"):
        check_architecture(model)


def folder_of(folder: Path, name: str, **other: object) -> ModelConfig:
    """A pipeline's settings without weights: those of a published architecture, some of them others."""
    networks = PUBLISHED[name]
    for part, settings in (("unet", {**networks.unet, **other}), ("vae", networks.vae)):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text(json.dumps(settings))
    (folder / "model_index.json").write_text(json.dumps({"_class_name": networks.pipeline}))
    return ModelConfig(name=name, architecture=name, source=str(folder))


@pytest.mark.parametrize("name", PUBLISHED)
def test_files_of_a_published_architecture_pass_under_its_name(name: str, tmp_path: Path) -> None:
    check_architecture(folder_of(tmp_path, name))


def test_sd_2_given_as_sd_1_is_told_with_its_model(tmp_path: Path) -> None:
    """Channels and groups are the same; the text's width is not, and size and guidance would be those of the other."""
    model = folder_of(tmp_path, "sd21")
    sentence = "of cross_attention_dim 1024; .* of cross_attention_dim 768: use model=sd21 with this source or "
    with pytest.raises(ValueError, match=sentence):
        check_architecture(replace(model, architecture="sd15"))


def test_a_distilled_unet_of_fewer_layers_is_not_taken_for_the_whole_one(tmp_path: Path) -> None:
    """Cuts by depth would be worked out for layers that it has not."""
    model = folder_of(tmp_path, "sdxl", transformer_layers_per_block=[0, 2, 4])
    sentence = r"transformer_layers_per_block \(0, 2, 4\); .* \(1, 2, 10\): use model.architecture=files"
    with pytest.raises(ValueError, match=sentence):
        check_architecture(model)


@pytest.mark.parametrize(
    "asks",
    [
        {"in_channels": 9},
        {"out_channels": 8},
        {"time_cond_proj_dim": 256},
        {"num_class_embeds": 10},
        {"dual_cross_attention": True},
    ],
)
@pytest.mark.parametrize("architecture", ["sd15", "files"])
def test_a_unet_that_asks_for_more_than_a_text_is_refused(
    tmp_path: Path, architecture: str, asks: dict[str, object]
) -> None:
    """diffusers' own pipeline fails on each in its first step: inpainting, a variance, LCM, classes, two texts."""
    model = replace(folder_of(tmp_path, "sd15", **asks), architecture=architecture)
    with pytest.raises(ValueError, match=f"its UNet has {next(iter(asks))}=.* use such as model=sdxl"):
        check_architecture(model)


SIMPLE = ["SimpleCrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"]
ATTENDING = ["AttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]

ODD_LAYERS = (
    {"down_block_types": SIMPLE},
    {"up_block_types": ATTENDING},
    {"mid_block_type": "UNetMidBlock2DSimpleCrossAttn"},
    {"resnet_time_scale_shift": "scale_shift"},
    {"mid_block_scale_factor": 2.0},
    {"dropout": 0.1},
    {"conv_in_kernel": 5},
    {"conv_out_kernel": 1},
    {"downsample_padding": 0},
    {"only_cross_attention": [True, False, False, False]},
    {"attention_type": "gated"},
    {"center_input_sample": True},
    {"time_embedding_act_fn": "silu"},
    {"encoder_hid_dim": 768, "encoder_hid_dim_type": "text_proj"},
    {"addition_embed_type": "text"},
)
"""Each fails on a rank of some method: the layers of slices, distrifuser's or those of stages."""


@pytest.mark.parametrize("odd", ODD_LAYERS, ids=lambda odd: next(iter(odd)))
@pytest.mark.parametrize("architecture", ["sd15", "files"])
def test_a_unet_of_layers_that_no_rank_can_share_is_refused(
    tmp_path: Path, architecture: str, odd: dict[str, object]
) -> None:
    model = replace(folder_of(tmp_path, "sd15", **odd), architecture=architecture)
    sentence = (
        f"its UNet has .*{next(iter(odd))}=.*share out the layers of SDXL.*{next(iter(odd))}=.*use such as model="
    )
    with pytest.raises(ValueError, match=sentence):
        check_architecture(model)


def test_an_sdxl_is_told_its_text_and_sizes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"addition_embed_type=None, .*\(addition_embed_type=text_time\)"):
        check_architecture(folder_of(tmp_path, "sdxl", addition_embed_type=None))


@pytest.mark.parametrize(
    "harmless",
    [
        {"act_fn": "gelu"},
        {"mid_block_type": None},
        {"resnet_out_scale_factor": 2.0},
        {"time_embedding_type": "fourier"},
        {"timestep_post_act": "silu"},
        {"norm_eps": 1e-3},
        {"dropout": 0},
        {"downsample_padding": 1, "mid_block_scale_factor": 1, "conv_in_kernel": 3, "only_cross_attention": False},
    ],
    ids=lambda harmless: next(iter(harmless)),
)
def test_what_no_layer_minds_passes(tmp_path: Path, harmless: dict[str, object]) -> None:
    check_architecture(replace(folder_of(tmp_path, "sd15", **harmless), architecture="files"))


@pytest.mark.parametrize(
    "uneven",
    [
        {"layers_per_block": [1, 2, 1]},
        {"transformer_layers_per_block": [0, [1, 2], 4]},
        {"reverse_transformer_layers_per_block": [[4, 4, 10], [2, 1, 1], 1]},
    ],
    ids=lambda uneven: next(iter(uneven)),
)
def test_a_unet_of_uneven_levels_is_not_cut_by_depth(typed: Typed, tmp_path: Path, uneven: dict[str, object]) -> None:
    """Distilled SDXLs have other layers on the way up; which of them lies where a cut is asked for is not known."""
    folder_of(tmp_path, "sdxl", **uneven)
    words = ("model=sdxl", f"model.source={tmp_path}", "model.architecture=files", "model.dtype=float32")
    with pytest.raises(ValueError, match=f"^{next(iter(uneven))}=.*can be cut by depth"):
        validate(typed(*words, "preset=fold", "topology=2gpu_nosplit"))


def test_numbers_of_ranks_that_tensor_advises_are_those_that_divide(typed: Typed, tmp_path: Path) -> None:
    model = folder_of(tmp_path, "sd15", block_out_channels=[24, 48, 72, 72], norm_num_groups=6)
    words = ("model=sd15", f"model.source={model.source}", "model.architecture=files", "model.dtype=float32")
    with pytest.raises(ValueError, match="use a topology of 1, 2, 3 or 6 ranks a half"):
        validate(typed(*words, "preset=tensor", "topology=4gpu_nosplit"))
    validate(typed(*words, "preset=tensor", "topology=3gpu_nosplit"))


def test_files_that_are_not_here_are_named(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline"}))
    with pytest.raises(FileNotFoundError, match=r"is a folder that lacks files \(no unet/config.json\)"):
        architecture_of(ModelConfig(name="mine", architecture="files", source=str(tmp_path)))


def test_the_message_names_every_architecture() -> None:
    with pytest.raises(ValueError, match=", ".join(ARCHITECTURES)):
        architecture_of(ModelConfig(name="mine", architecture="nothing", source="random"))
