"""What a run says about itself at W&B: name, tags, config."""

from __future__ import annotations

from typing import Any

from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.methods.geometry import uses
from otil_exp.metrics.seam import Boundaries
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.naming import names_in_grid

FROM_RECORD = (
    "signature",
    "picture_key",
    "method",
    "is_reference",
    "effective",
    "stages",
    "engine",
    "device",
    "times_meaningless",
    "started",
    "host",
    "cpu",
    "gpus",
    "gpu_links",
    "driver",
    "versions",
    "git_commit",
)
"""Keys of record.json that go into the config as facts.*."""


def run_name(folder: RunFolder) -> str:
    """What the run is called among the cells of its grid, as in tables and reports."""
    return str(folder.planned.get("name")) if "name" in folder.planned else names_in_grid([folder])[0]


def run_id(record: dict[str, Any]) -> str:
    """The same for every job that goes on with a run folder, another one for a folder made afresh."""
    started = "".join(c for c in record["started"].partition("+")[0] if c.isalnum())
    return f"{record['signature']}-{started}"


def run_config(config: ExperimentConfig, folder: RunFolder, seams: Boundaries) -> dict[str, Any]:
    """The effective config, nested and plain, so that filters find what ran; `composed`: what was typed.

    `facts`: where it ran, and how. config: an effective one. A reference on one GPU has one rank here, no k and
    no warm-up, whatever the grid it is a cell of.
    """
    record = folder.record
    facts = {key: record.get(key) for key in FROM_RECORD}
    topology = record["topology"] | {"seams": seams.labels}
    ran = to_plain(config)
    ran |= {} if uses(config, "warmup_steps") else {"warmup_steps": None}
    return ran | {"composed": folder.config, "facts": facts | {"topology": topology}}


def run_tags(folder: RunFolder) -> list[str]:
    """Method, topology, model, device and mode."""
    record, config = folder.record, folder.config
    return [record["method"], record["topology"]["name"], config["model"]["name"], record["device"], config["mode"]]
