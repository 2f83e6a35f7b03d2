"""What a run is called, in tables, pages and trackers: what it ran, and what else tells it from runs like it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from otil_exp.run_folder.folder import BrokenFolderError, RunFolder
from otil_exp.run_folder.signature import IGNORED

NAMED = ("topology", "k", "refresh", "preset.name")
"""Parts of a config that a name has its own words for."""

IRRELEVANT = tuple(set(IGNORED) - {"prompts", "seed"})
"""Parts of a config that change neither pictures nor times."""


def said_by(folder: RunFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the record and the config say, or are going to say; empty where they do not, or cannot be read."""
    try:
        config = folder.config if (folder.path / "config.yaml").exists() else folder.planned.get("config", {})
        record = folder.known
    except BrokenFolderError:
        return {}, {}
    if not record and "preset" in config:  # a run that never began
        record = {"method": config["preset"].get("name")}
    return record, config


def short_name(record: dict[str, Any]) -> str:
    """Method and topology as a user types them, with k and refresh where the method has them."""
    effective = record.get("effective", {})
    parts = [str(record.get("method") or "unknown")]
    parts += [record["topology"]["name"]] if "name" in record.get("topology", {}) else []
    parts += [f"k{effective['k']}"] if effective.get("k") else []
    parts += [f"every{effective['refresh_period']}"] if effective.get("refresh_period") else []
    return " ".join(parts)


def variants(folders: Sequence[RunFolder]) -> list[str]:
    """For each run, "key=value ..." of what differs among the runs of the same short name; mostly empty."""
    alike: dict[str, list[int]] = defaultdict(list)
    said = [said_by(folder) for folder in folders]
    settings = [_flat(config) for _, config in said]
    for i, (record, _) in enumerate(said):
        alike[short_name(record)].append(i)
    found = [""] * len(folders)
    for same in alike.values():
        keys = dict.fromkeys(key for i in same for key in settings[i])
        differing = [key for key in keys if len({repr(settings[i].get(key)) for i in same}) > 1]
        for i in same:
            found[i] = " ".join(_as_typed(key, settings[i].get(key)) for key in differing)
    return found


def names(folders: Sequence[RunFolder]) -> list[str]:
    """A name for each run, different for all: short, with what differs, then the folder's where nothing else does."""
    found = [
        f"{short_name(said_by(folder)[0])} {variant}".strip()
        for folder, variant in zip(folders, variants(folders), strict=True)
    ]
    return [
        name if found.count(name) == 1 else f"{name} ({folder.path.name})"
        for folder, name in zip(folders, found, strict=True)
    ]


def _as_typed(key: str, value: Any) -> str:
    """A setting as a user types it, without its group: engine=eager, gn_sync=true."""
    yaml = {"True": "true", "False": "false", "None": "null"}
    return f"{key.removesuffix('.name').rpartition('.')[2]}={yaml.get(str(value), value)}"


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, without those of NAMED and IRRELEVANT."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        path = prefix + key
        if path in NAMED or path in IRRELEVANT:
            continue
        found |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found
