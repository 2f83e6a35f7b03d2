"""What a run is called, in tables, pages and trackers: what it ran, and what else tells it from runs like it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.signature import IGNORED
from otil_exp.run_folder.whole import BrokenFolderError

NAMED = ("topology", "k", "refresh", "preset.name")
"""Parts of a config that a name has its own words for."""

RESOLVED = ("prompts", "seed")
"""Parts that a signature holds in another form; a name has them as they were typed."""


def said_by(folder: RunFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the record and the config say, or are going to say; empty where they do not, or are not whole."""
    try:
        record, config = folder.known, folder.config if (folder.path / "config.yaml").exists() else {}
    except BrokenFolderError:
        return {}, {}
    config = config or folder.planned.get("config", {})
    if not record and "preset" in config:  # a run that never began
        record = {"method": config["preset"].get("name")}
    return record, config


def short_name(record: dict[str, Any]) -> str:
    """Method and topology as a user types them, with k and refresh where the method has them."""
    effective = record.get("effective", {})
    parts = [str(record.get("method") or "unknown")]
    parts += [record["topology"]["name"]] if "name" in record.get("topology", {}) else []
    parts += [f"k{effective['k']}"] if effective.get("k") else []
    word = "rolling" if effective.get("refresh_rolling") else "every"
    parts += [f"{word}{effective['refresh_period']}"] if effective.get("refresh_period") else []
    return " ".join(parts)


def variants(folders: Sequence[RunFolder]) -> list[str]:
    """For each run, "key=value ..." of what differs among the runs of the same short name; mostly empty.

    A run without a config, such as a broken one, has none, and makes the others' no longer.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    said = [said_by(folder) for folder in folders]
    settings = [_flat(config) for _, config in said]
    for i, (record, _) in enumerate(said):
        if settings[i]:
            alike[short_name(record)].append(i)
    found = [""] * len(folders)
    for same in alike.values():
        keys = dict.fromkeys(key for i in same for key in settings[i])
        differing = [key for key in keys if len({repr(settings[i].get(key)) for i in same}) > 1]
        for i in same:
            found[i] = " ".join(_as_typed(key, settings[i].get(key)) for key in differing)
    return found


def names(folders: Sequence[RunFolder]) -> list[str]:
    """A name for each run, different for all: short, with what differs, then the folder's where nothing else does, and
    the grid's where one cell is in several."""
    first = [
        f"{short_name(said_by(folder)[0])} {variant}".strip()
        for folder, variant in zip(folders, variants(folders), strict=True)
    ]
    found = first
    for beside in (lambda path: path.name, lambda path: f"{path.parent.name}/{path.name}"):
        counts = Counter(found)
        found = [
            name if counts[name] == 1 else f"{short} ({beside(folder.path)})"
            for folder, name, short in zip(folders, found, first, strict=True)
        ]
    return found


def names_in_grid(folders: Sequence[RunFolder]) -> list[str]:
    """Names of cells of one grid that differ from each other's, and from those of runs that have begun beside them."""
    known = {folder.path for folder in folders}
    grids = dict.fromkeys(folder.path.parent for folder in folders)
    begun = [path.parent for grid in grids for path in sorted(grid.glob("*/record.json"))]
    return names([*folders, *(RunFolder(path) for path in begun if path not in known)])[: len(folders)]


def _as_typed(key: str, value: Any) -> str:
    """A setting as a user types it, without its group: engine=eager, gn_sync=true."""
    yaml = {"True": "true", "False": "false", "None": "null"}
    return f"{key.removesuffix('.name').rpartition('.')[2]}={yaml.get(str(value), value)}"


def _flat(config: Mapping[str, Any], ignored: Mapping[str, Any] = IGNORED, prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, without what a name has words for and what changes neither pictures nor times."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        path = prefix + key
        within = ignored.get(key, {})
        if path in NAMED or (within is None and key not in RESOLVED):
            continue
        found |= _flat(value, within or {}, f"{path}.") if isinstance(value, dict) else {path: value}
    return found
