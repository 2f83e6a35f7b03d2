"""What a run says about itself at W&B: name, tags, config."""

from __future__ import annotations

from typing import Any

from otil_exp.metrics.seam import Boundaries
from otil_exp.run_folder.folder import RunFolder

FROM_RECORD = (
    "signature",
    "picture_key",
    "method",
    "effective",
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


def topology_label(record: dict[str, Any]) -> str:
    """1gpu, 4gpu_split, ...: the name of topology= that the run really used."""
    ranks, split = record["topology"]["world_size"], record["topology"]["split_batch"]
    return f"{ranks}gpu" + ("" if ranks == 1 else "_split" if split else "_nosplit")


def run_name(record: dict[str, Any]) -> str:
    """Method and topology, with k and refresh where the method has them."""
    effective = record["effective"]
    extra = [f"k{effective['k']}"] if effective["k"] else []
    extra += [f"every{effective['refresh_period']}"] if effective["refresh_period"] else []
    return " ".join([record["method"], topology_label(record), *extra])


def run_id(record: dict[str, Any]) -> str:
    """The same for every job that goes on with a run folder, another one for a folder made afresh."""
    started = "".join(c for c in record["started"].partition("+")[0] if c.isalnum())
    return f"{record['signature']}-{started}"


def run_config(folder: RunFolder, seams: Boundaries) -> dict[str, Any]:
    """The composed config, nested and plain, and beside it `facts`: what was really used, and where."""
    record = folder.record
    facts = {key: record.get(key) for key in FROM_RECORD}
    topology = record["topology"] | {"name": topology_label(record), "seams": seams.labels}
    return folder.config | {"facts": facts | {"topology": topology}}


def run_tags(folder: RunFolder) -> list[str]:
    """Method, topology, model, device and mode."""
    record, config = folder.record, folder.config
    return [record["method"], topology_label(record), config["model"]["name"], record["device"], config["mode"]]
