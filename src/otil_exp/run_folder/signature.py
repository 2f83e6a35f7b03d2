"""A run's signature: the hash of what can change its pictures or times, as far as it differs from the defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from otil_exp.choices import Mode
from otil_exp.config import ExperimentConfig
from otil_exp.models.files import RANDOM
from otil_exp.prompts import Prompt

FORM = 2
"""Which way of making signatures this is. Run folders of version 0.1 have none in their record, and other names."""

IGNORED: Mapping[str, Any] = {
    **dict.fromkeys(("name", "output_dir", "tracker", "metrics", "launch", "prompts", "seed")),
    "preset": {"name": None},
    "model": dict.fromkeys(("name", "sample_size", "guidance_scale", "block_size")),
}
"""Parts of a config (None: the whole of it) that change neither pictures nor times. Prompts and seed enter as the
prompts they resolve to, and what a model is used with as the height, width, guidance and blocks composed from it."""

PICTURE_KEYS = ("model", "height", "width", "num_inference_steps", "guidance_scale", "scheduler")
"""What two runs must share for their pictures of a prompt to be comparable."""


def signature(effective: ExperimentConfig, prompts: list[Prompt]) -> str:
    """12 hex digits over what the effective config has other than the schema, and the prompts with their seeds.

    A field that is added to the schema with a default leaves all signatures as they were.
    """
    used = prompts if effective.mode is Mode.generate else prompts[:1]
    return _digest(_of_run(effective) | {"prompts": [[prompt.index, prompt.text, prompt.seed] for prompt in used]})


def picture_key(effective: ExperimentConfig) -> str:
    """12 hex digits over what fixes the picture of a (prompt, seed) but for the method: joins runs to a reference."""
    return _digest({key: value for key, value in _of_run(effective).items() if key in PICTURE_KEYS})


def _of_run(effective: ExperimentConfig) -> dict[str, Any]:
    """What is said of a run; of a model that comes from files, the files say what it is made of."""
    found = said(effective)
    if effective.model.source != RANDOM:
        found["model"].pop("architecture", None)
    return found


def said(settings: Any, ignored: Mapping[str, Any] = IGNORED) -> dict[str, Any]:
    """Values of a config that differ from the defaults of its dataclass, nested and plain; without what is ignored.

    A group of settings that is of another type than its default says which ("of"), even where it has only defaults.
    """
    found: dict[str, Any] = {}
    for one in fields(settings):
        skip = ignored.get(one.name, {})
        if skip is None:
            continue
        value, default = getattr(settings, one.name), _default(one)
        if is_dataclass(value):
            inner = said(value, skip)
            of = {} if type(value) is type(default) else {"of": type(value).__name__}
            if inner or of:
                found[one.name] = of | inner
        elif default is MISSING or _plain(value) != _plain(default):
            found[one.name] = _plain(value)
    return found


def _default(one: Any) -> Any:
    """The default of a dataclass's field; MISSING where it has none (for Hydra: "???")."""
    if one.default_factory is not MISSING:
        return one.default_factory()
    return MISSING if one.default == "???" else one.default


def _plain(value: Any) -> Any:
    """As JSON has it: choices by name, whole numbers alike however they are typed."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
