"""Whether a model's files are on this machine, and whole: asked before ranks start, answered without loading them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from otil_exp.config import ModelConfig

SHIPPED = ("package", "random")
"""Sources that need no files of their own."""

INDEX = "model_index.json"
"""The file that makes a folder a pipeline of diffusers."""

PIPELINE_CLASS = "StableDiffusionXLPipeline"
"""What that file has to name."""

SIMILAR = {
    "StableDiffusionPipeline": "Stable Diffusion 1 or 2",
    "StableDiffusion3Pipeline": "Stable Diffusion 3",
    "FluxPipeline": "FLUX",
}
"""Other pipelines that users try, by their class."""

WEIGHTS = {"unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model"}
"""How diffusers names the weights of a part; those of transformers are called model."""


MOST_HEADER_BYTES = 100_000_000
"""safetensors' own bound."""


def check_model(model: ModelConfig) -> None:
    """Raise FileNotFoundError or ValueError, with what to do, unless a whole SDXL pipeline is here.

    Headers and sizes are read, no weights.
    """
    if model.source in SHIPPED:
        return
    folder = _folder(model)
    for part, is_model in _parts(model, folder):
        if part.startswith("tokenizer"):
            _check_tokenizer(model, folder / part)
        elif is_model:
            for file in _weights(model, folder / part, part):
                _check_whole(model, file)


def missing_model(model: ModelConfig, reason: str) -> FileNotFoundError:
    """The sentence for a model that is not here."""
    variant = model.variant or "''"
    return FileNotFoundError(
        f"model.source={model.source} (variant {model.variant}) is neither a local pipeline folder nor in the cache: "
        f"run `otil-exp-fetch {model.source} --variant {variant}` on a machine with internet, or use "
        f"model.source=FOLDER ({reason})"
    )


def _folder(model: ModelConfig) -> Path:
    """Where the pipeline's files are: a folder of the user's, or one of the cache."""
    folder = Path(model.source).expanduser()
    if folder.is_dir():
        if not (folder / INDEX).exists():
            raise FileNotFoundError(
                f"model.source={model.source}: no {INDEX} in there, so it is no pipeline of diffusers; use the "
                "folder that save_pretrained made (a single .safetensors file is converted by from_single_file, then "
                "save_pretrained)"
            )
        return folder
    if folder.exists() or folder.is_absolute() or model.source.startswith((".", "~")) or model.source.count("/") != 1:
        what = "is a file" if folder.exists() else "there is no such folder"
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


def _parts(model: ModelConfig, folder: Path) -> list[tuple[str, bool]]:
    """The parts of the pipeline, and whether each has weights. Raises ValueError for other pipelines than SDXL's."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        named = str(index["_class_name"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"model.source={model.source}: {folder / INDEX} is damaged ({error}); fetch it anew"
        ) from error
    if named != PIPELINE_CLASS:
        what = f"{SIMILAR[named]} ({named})" if named in SIMILAR else named
        raise ValueError(
            f"model.source={model.source} is {what}, and what runs here is SDXL ({PIPELINE_CLASS}): use such as "
            "model.source=stabilityai/stable-diffusion-xl-base-1.0"
        )
    parts = [name for name, value in index.items() if isinstance(value, list) and value[0] is not None]
    return [(name, not name.startswith(("tokenizer", "scheduler", "feature_extractor"))) for name in parts]


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
    raise missing_model(model, f"no {part}/{stem}{variants[0]}.safetensors")


def _shards(model: ModelConfig, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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
