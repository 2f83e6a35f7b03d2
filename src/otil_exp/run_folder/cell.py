"""One point of a grid as data: what a launcher hands to a job, and a job to its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otil_exp.choices import Mode
from otil_exp.config import ExperimentConfig
from otil_exp.prompts import Prompt
from otil_exp.run_folder.folder import RunFolder
from otil_exp.topology import Topology


@dataclass(frozen=True)
class Cell:
    """A validated cell, ready to launch (`otil_exp.cells.prepare`)."""

    composed: dict[str, Any]
    """What the user composed, resolved and plain: the run folder's config.yaml."""

    effective: ExperimentConfig
    """What is run: settings the method ignores normalised away."""

    prompts: list[Prompt]
    folder: RunFolder

    @property
    def made(self) -> bool:
        """Whether the run is done and all its pictures are there, whole."""
        if not self.folder.finished:
            return False
        return self.effective.mode is not Mode.generate or all(self.folder.has_image(p.index) for p in self.prompts)

    @property
    def label(self) -> str:
        """The cell in a line of output: otil on 4gpu_split."""
        topology = self.effective.topology
        named = Topology(world_size=topology.world_size, split_batch=topology.split_batch)
        return f"{self.effective.preset.name} on {named.name}"
