"""Odd values of every field that can be typed: each is refused in a sentence before a process starts, or accepted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from composing import composed_of
from odd import typed_fields
from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.methods.rooms import families

USED = {
    "codec.": ("preset=balanced",),
    "tracker.": ("tracker=wandb_offline",),
    "benchmark.": ("mode=benchmark",),
    "prompts.column": ("prompts=file", f"prompts.path={Path(__file__).parent / 'prompts.tsv'}"),
    "prompts.path": ("prompts=file", "prompts.path=x"),
    "prompts.limit": ("prompts=shapes",),
    "metrics.ground_truth": ("metrics.extractors=[effnet_lite0]",),
    "metrics.alexnet_weights": ("metrics.perceptual=lpips_alex",),
    "metrics.inception_weights": ("metrics.extractors=[inception]",),
    "topology.": ("preset=step_reuse",),
    "engine.": ("preset=balanced",),
    "preset.stale_layers": ("preset=tensor_stale",),
    "preset.transmit": ("preset=otil",),
}
"""Where a field is read, by the beginning of its key; elsewhere it is `preset=otil`, or its family's first preset."""


@cache
def presets_of_families() -> dict[str, str]:
    """A preset of every family, by room."""
    rooms = {family: room for room, family in families().items()}
    found: dict[str, str] = {}
    for path in sorted((conf_folder() / "preset").glob("*.yaml")):
        family = OmegaConf.get_type(base(f"preset={path.stem}").preset)
        found.setdefault(rooms[family], path.stem)
    return found


def base(*overrides: str) -> DictConfig:
    return composed_of("device=cpu", "topology=2gpu_nosplit", "preset=otil", *overrides)


def all_fields() -> Iterator[Any]:
    for key, values in typed_fields(ExperimentConfig):
        yield pytest.param("otil", key, values, id=key)
    for room, family in families().items():
        for key, values in typed_fields(family, "preset."):
            if key != "preset.name":
                yield pytest.param(room, key, values, id=f"{room} {key}")


def outcome(config: DictConfig, key: str, value: Any) -> str:
    """accepted, or the sentence by which a value is refused; anything else that is raised is a fault of ours."""
    try:
        OmegaConf.update(config, key, value, merge=True)
        prepare(config)
    except (ValueError, FileNotFoundError, OmegaConfBaseException) as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(("room", "key", "values"), all_fields())
def test_each_is_refused_in_a_sentence_or_accepted(
    room: str, key: str, values: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where folders with odd names are made
    preset = presets_of_families().get(room, room)
    used = next((overrides for start, overrides in USED.items() if key.startswith(start)), ())
    for value in values:
        if key == "output_dir" and str(value).startswith(("/", "..")):
            continue  # not here
        assert len(outcome(base(f"preset={preset}", *used), key, value)) >= len("accepted"), value


@pytest.mark.parametrize(
    ("overrides", "key", "value", "words"),
    [
        ((), "prompts.texts", [["a"]], "prompts.texts=[['a']]: an entry of a list is one value"),
        (("preset=fold",), "preset.cut", [["a"]], "an entry of a list is one value"),
        ((), "model.source", "x" * 300, "there is no such folder"),
        ((), "height", 2**20, "at most 178956970 pixels"),
        ((), "guidance_scale", 1e308, "use 1 (no guidance) to 1000"),
        ((), "device.threads", 10**6, "use 1 to 1024, or null"),
        ((), "codec.quantizer", "abc", "use one of none"),
        (("preset=step_reuse",), "topology.world_size", 10**6, "use 1 to 1024"),
        ((), "launch.collective_timeout_s", 1e308, "up to 10000000"),
        ((), "tracker.init_timeout_s", float("nan"), "tracker.init_timeout_s=60"),
        ((), "tracker.pictures", -1, "use 0 (none) or more"),
        (("tracker=wandb_offline",), "tracker.project", "a/b", "such as tracker.project=otil_exp"),
        ((), "metrics.text_image", ".", "neither a folder with model, tokenizer and processor"),
    ],
)
def test_what_would_fail_later_is_refused(
    overrides: tuple[str, ...], key: str, value: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in outcome(base(*overrides), key, value)
