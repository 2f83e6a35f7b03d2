"""A run's signature: the hash of what can change its pictures or times."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from otil_exp.choices import Mode
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.prompts import Prompt

IGNORED = ("name", "output_dir", "tracker", "metrics", "launch", "prompts", "seed")
"""Parts of a config that change neither pictures nor times (prompts and seed enter as the prompts they resolve to)."""

PICTURE_KEYS = ("model", "height", "width", "num_inference_steps", "guidance_scale", "scheduler")
"""What two runs must share for their pictures of a prompt to be comparable."""


def signature(effective: ExperimentConfig, prompts: list[Prompt]) -> str:
    """12 hex digits over the effective config and the prompts with their seeds; what a method is called counts not."""
    plain = {key: value for key, value in to_plain(effective).items() if key not in IGNORED}
    plain["preset"] = {key: value for key, value in plain["preset"].items() if key != "name"}
    used = prompts if effective.mode is Mode.generate else prompts[:1]
    return _digest(plain | {"prompts": [[prompt.index, prompt.text, prompt.seed] for prompt in used]})


def picture_key(effective: ExperimentConfig) -> str:
    """12 hex digits over what fixes the picture of a (prompt, seed) but for the method: joins runs to a reference."""
    plain = to_plain(effective)
    return _digest({key: plain[key] for key in PICTURE_KEYS})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
