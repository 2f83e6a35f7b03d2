"""Whether a model's files are on this machine, and whole: asked before ranks start, answered without loading them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from otil_exp.config import ModelConfig
from otil_exp.shapes import PIPELINE_FOLDER

PACKAGE, RANDOM = "package", "random"

SHIPPED = (PACKAGE, RANDOM)
"""Sources that need no files of their own."""

INDEX = "model_index.json"
"""The file that makes a folder a pipeline of diffusers."""

SDXL_PIPELINE, SD_PIPELINE = "StableDiffusionXLPipeline", "StableDiffusionPipeline"
"""Classes of diffusers that are supported; what each needs stands in otil_exp.models.families."""

_IN_WORDS = {
    SDXL_PIPELINE: "SDXL",
    SD_PIPELINE: "Stable Diffusion 1 or 2",
    "StableDiffusion3Pipeline": "Stable Diffusion 3",
    "FluxPipeline": "FLUX",
}
"""Pipelines that users try, by their class."""

WEIGHTS = {"unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model"}
"""How diffusers names the weights of a part; those of transformers are called model."""

_WITHOUT_WEIGHTS = ("tokenizer", "scheduler", "feature_extractor", "safety_checker")
"""Beginnings of the names of parts that have none, or are not loaded: the safety checker is off and not fetched."""

MOST_HEADER_BYTES = 100_000_000
"""safetensors' own bound."""


def check_model(model: ModelConfig) -> None:
    """Raise FileNotFoundError or ValueError, with what to do, unless a whole pipeline is here.

    Headers and sizes are read, no weights.
    """
    if model.source in SHIPPED:
        return
    folder = pipeline_folder(model)
    parts = [name for name, value in read_index(model).items() if isinstance(value, list) and value[0] is not None]
    for part in parts:
        if part.startswith("tokenizer"):
            _check_tokenizer(model, folder / part)
        elif not part.startswith(_WITHOUT_WEIGHTS):
            for file in _weights(model, folder / part, part):
                _check_whole(model, file)


def missing_model(model: ModelConfig, reason: str) -> FileNotFoundError:
    """The sentence for a model that is not here, or not whole; a folder of the user's is nothing to fetch."""
    if os.path.isdir(os.path.expanduser(model.source)):
        return FileNotFoundError(
            f"model.source={model.source} (variant {model.variant}) is a folder that lacks files ({reason}): save the "
            "pipeline there anew, by save_pretrained, or copy what is missing"
        )
    variant = model.variant or "''"
    return FileNotFoundError(
        f"model.source={model.source} (variant {model.variant}) is neither a local pipeline folder nor in the cache: "
        f"run `otil-exp-fetch {model.source} --variant {variant}` on a machine with internet, or use "
        f"model.source=FOLDER ({reason})"
    )


def pipeline_folder(model: ModelConfig) -> Path:
    """Where the pipeline's files are: in the package, a folder of the user's, or one of the cache.

    Raises FileNotFoundError, with what to do, where it is none of these.
    """
    folder = PIPELINE_FOLDER if model.source == PACKAGE else Path(model.source).expanduser()
    if os.path.isdir(folder):  # which a name that is too long is not, where Path raises
        if not (folder / INDEX).exists():
            raise FileNotFoundError(
                f"model.source={model.source}: no {INDEX} in there, so it is no pipeline of diffusers; use the "
                "folder that save_pretrained made (a single .safetensors file is converted by from_single_file, then "
                "save_pretrained)"
            )
        return folder
    exists = os.path.exists(folder)
    if exists or folder.is_absolute() or model.source.startswith((".", "~")) or model.source.count("/") != 1:
        what = "is a file" if exists else "there is no such folder"
        raise FileNotFoundError(
            f"model.source={model.source}: {what}; use the folder of a pipeline, or OWNER/NAME as on the hub"
        )
    try:
        found = try_to_load_from_cache(model.source, INDEX, revision=model.revision)
    except HFValidationError as error:
        raise FileNotFoundError(f"model.source={model.source}: {error}; use a folder, or OWNER/NAME") from error
    if not isinstance(found, str):
        raise missing_model(model, f"no {INDEX}")
    return Path(found).parent


def read_index(model: ModelConfig) -> dict[str, Any]:
    """What model_index.json says: the parts of the pipeline. Raises ValueError, with what to use, for pipelines of
    classes that are not supported, and for a damaged file."""
    index = read_json(model, pipeline_folder(model) / INDEX)
    if (named := index.get("_class_name", "no pipeline, by its model_index.json")) not in (SDXL_PIPELINE, SD_PIPELINE):
        raise ValueError(
            f"model.source={model.source} is {in_words(named)}, and what runs here is {in_words(SDXL_PIPELINE)} and "
            f"{in_words(SD_PIPELINE)}: use such as model.source=stabilityai/stable-diffusion-xl-base-1.0"
        )
    return index


def read_json(model: ModelConfig, file: Path) -> dict[str, Any]:
    """A JSON file of a pipeline. Raises FileNotFoundError where it is not here and ValueError for a damaged one, both
    with what to do."""
    if not file.exists():
        raise missing_model(model, f"no {file.parent.name}/{file.name}")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise ValueError(f"model.source={model.source}: {file} is damaged ({error}); fetch it anew") from error
    return found


def in_words(pipeline: object) -> str:
    """A class of pipelines as users call it, and as diffusers does."""
    return f"{_IN_WORDS[pipeline]} ({pipeline})" if pipeline in _IN_WORDS else str(pipeline)


def _check_tokenizer(model: ModelConfig, folder: Path) -> None:
    whole = (folder / "tokenizer.json").exists()
    if not whole and not all((folder / name).exists() for name in ("vocab.json", "merges.txt")):
        raise FileNotFoundError(
            f"model.source={model.source} lacks {folder.name}/tokenizer.json (or vocab.json and merges.txt): copy the "
            f"{folder.name} folder of the original pipeline there, or fetch it anew"
        )


def _weights(model: ModelConfig, folder: Path, part: str) -> list[Path]:
    """Files of a part's weights; large ones are saved in several, with an index beside them."""
    stem = WEIGHTS.get(part, "model")
    # As diffusers does: only the UNet, which is most of the model, has to be there in the variant asked for.
    variants = [f".{model.variant}"] if model.variant else [""]
    for variant in variants if part == "unet" else [*variants, ""]:
        whole = folder / f"{stem}{variant}.safetensors"
        if whole.exists():
            return [whole]
        for listed in (f"{stem}.safetensors.index{variant}.json", f"{stem}{variant}.safetensors.index.json"):
            if (folder / listed).exists():
                return _shards(model, folder / listed)
    lacking = f"no {part}/{stem}{variants[0]}.safetensors"
    if others := _variants(folder, stem):
        use = " or ".join(f"model.variant={other}" for other in others)
        raise FileNotFoundError(
            f"model.source={model.source} has {lacking} (model.variant={model.variant or 'null'}): use {use}, "
            "which is there"
        )
    raise missing_model(model, lacking)


def _variants(folder: Path, stem: str) -> list[str]:
    """The variants that a part is here in, as a user types them."""
    whole = {file.name.removeprefix(stem).removesuffix(".safetensors") for file in folder.glob(f"{stem}*.safetensors")}
    names = {re.sub(r"-\d+-of-\d+", "", name) for name in whole}  # of several files, as diffusers numbers them
    return sorted(name.removeprefix(".") or "null" for name in names if re.fullmatch(r"(\.\w+)?", name))


def _shards(model: ModelConfig, index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(model, index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"model.source={model.source}: {index} is damaged ({error}); fetch it anew") from error
    if lacking := [name for name in names if not (index.parent / name).exists()]:
        raise missing_model(
            model, f"{index.parent.name}: {len(lacking)} of {len(names)} parts lack, {lacking[0]} first"
        )
    return [index.parent / name for name in names]


def _check_whole(model: ModelConfig, file: Path) -> None:
    """Raise ValueError for weights that were cut or changed on their way.

    A safetensors file is 8 bytes with the length of its header, the header (JSON: where each tensor is), the tensors.
    """
    size = os.path.getsize(file)
    with file.open("rb") as stream:
        start = stream.read(8)
        length = int.from_bytes(start, "little")
        header = stream.read(length) if length <= min(size - 8, MOST_HEADER_BYTES) else b""
    fault = None
    if start == b"version ":
        fault = "a pointer of Git LFS, not the weights: run `git lfs pull` in that repository"
    elif size < 8 or not header:
        fault = f"cut or damaged ({size:,} bytes, without a whole header): fetch it anew"
    else:
        try:
            tensors = json.loads(header)
            ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
            whole = 8 + length + max(ends, default=0)
            if size != whole:
                fault = f"{size:,} bytes long where its header says {whole:,}: cut on its way, fetch it anew"
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            fault = f"damaged ({type(error).__name__} in its header): fetch it anew"
    if fault is not None:
        raise ValueError(f"model.source={model.source}: {file.parent.name}/{file.name} is {fault}")
