"""What tells two runs of one method apart: the settings in which their configs differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from otil_exp.run_folder.folder import RunFolder

SHOWN = ("topology", "k", "refresh", "preset.name")
"""Parts of a config that the table has columns for."""

IRRELEVANT = ("name", "output_dir", "tracker", "metrics", "launch")
"""Parts of a config that change neither pictures nor times."""


def variants(folders: Sequence[RunFolder]) -> list[str]:
    """For each run, "key=value ..." of what differs among the runs that would look alike in the table; mostly empty."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    settings = [_flat(_config(folder)) for folder in folders]
    for i, folder in enumerate(folders):
        record = folder.known
        effective = record.get("effective", {})
        alike[
            (record.get("method"), str(record.get("topology")), effective.get("k"), effective.get("refresh_period"))
        ].append(i)
    found = [""] * len(folders)
    for same in alike.values():
        keys = dict.fromkeys(key for i in same for key in settings[i])
        differing = [key for key in keys if len({repr(settings[i].get(key)) for i in same}) > 1]
        for i in same:
            found[i] = " ".join(_as_typed(key, settings[i].get(key)) for key in differing)
    return found


def _as_typed(key: str, value: Any) -> str:
    """A setting as a user types it, without its group: engine=eager, gn_sync=true."""
    yaml = {"True": "true", "False": "false", "None": "null"}
    return f"{key.removesuffix('.name').rpartition('.')[2]}={yaml.get(str(value), value)}"


def _config(folder: RunFolder) -> dict[str, Any]:
    planned: dict[str, Any] = folder.planned.get("config", {})
    return (folder.config if (folder.path / "config.yaml").exists() else {}) or planned


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, without those of SHOWN and IRRELEVANT."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        path = prefix + key
        if path in SHOWN or path in IRRELEVANT:
            continue
        found |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found
