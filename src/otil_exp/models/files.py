"""Whether a model's files are on this machine: asked before ranks start, answered without loading anything."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from otil_exp.config import ModelConfig
from otil_exp.shapes import PIPELINE_FOLDER

PACKAGE, RANDOM = "package", "random"

SHIPPED = (PACKAGE, RANDOM)
"""Sources that need no files of their own."""

INDEX = "model_index.json"
"""The file that makes a folder a pipeline of diffusers."""


def check_model(model: ModelConfig) -> None:
    """Raise FileNotFoundError, with what to run, unless the pipeline and the UNet's weights are here."""
    if model.source in SHIPPED:
        return
    variant = f".{model.variant}" if model.variant else ""
    for name in (INDEX, f"unet/diffusion_pytorch_model{variant}.safetensors"):
        if not _is_here(model, name):
            raise missing_model(model, f"no {name}")


def missing_model(model: ModelConfig, reason: str) -> FileNotFoundError:
    """The sentence for a model that cannot be loaded."""
    variant = f" --variant {model.variant}" if model.variant else " --variant ''"
    return FileNotFoundError(
        f"model.source={model.source} (variant {model.variant}) is neither a local pipeline folder nor in the cache: "
        f"run `python launchers/fetch_models.py {model.source}{variant}` on a machine with internet, or use "
        f"model.source=FOLDER ({reason})"
    )


def model_file(model: ModelConfig, name: str) -> Path | None:
    """Where a file of a pipeline lies: in the folder that is the model's source, or in the cache; None where not."""
    folder = PIPELINE_FOLDER if model.source == PACKAGE else Path(model.source).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).exists() else None
    found = try_to_load_from_cache(model.source, name, revision=model.revision)
    return Path(found) if isinstance(found, str) else None


def _is_here(model: ModelConfig, name: str) -> bool:
    # Large UNets are saved in parts, with an index beside them.
    return any(model_file(model, file) is not None for file in (name, f"{name}.index.json"))
