"""What a rank needs to know of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otil_exp.config import ExperimentConfig
from otil_exp.prompts import Prompt
from otil_exp.run_folder.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run, as it is handed to its ranks."""

    effective: ExperimentConfig
    """What is run."""

    composed: dict[str, Any]
    """What the user composed, for config.yaml."""

    prompts: list[Prompt]
    folder: RunFolder
