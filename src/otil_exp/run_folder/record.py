"""record.json, metrics.json and config.yaml as data: whatever was cut, emptied or is of another form is said so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from otil_exp.run_folder.whole import BrokenFolderError

# PyYAML's own loader takes 20 ms for a config.yaml, libyaml's 2: a table of a grid reads a thousand of them.
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_SHAPES: Mapping[str, type] = {
    "status": str,
    "method": str,
    "is_reference": bool,
    "picture_key": str,
    "topology": dict,
    "effective": dict,
    "prompts": list,
    "attempts": list,
    "checksums": dict,
}
"""What these keys of a record are, where it has them."""


class Record(dict[str, Any]):
    """What record.json says; a key that is asked for and not there is a fault of the file, which is named."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise _broken(self.path, f"it lacks {key}, as a file that was changed or is of an earlier version may")


def read_record(path: Path) -> Record:
    """A record.json; empty where there is none. Raises BrokenFolderError."""
    record = Record(path, _read_json(path))
    for key, shape in _SHAPES.items():
        if key in record and not isinstance(record[key], shape):
            raise _broken(path, f"its {key} is {json.dumps(record[key])[:40]}")
    for prompt in record.get("prompts", ()):
        if not isinstance(prompt, dict) or not {"index", "text", "seed"} <= prompt.keys():
            raise _broken(path, f"one of its prompts is {json.dumps(prompt)[:40]}")
    return record


def read_metrics(path: Path) -> dict[str, dict[str, Any]]:
    """A metrics.json; empty where there is none. Raises BrokenFolderError."""
    metrics = _read_json(path)
    for key, entry in metrics.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("value"), int | float | None):
            raise _broken(path, f"its {key} is {json.dumps(entry)[:40]}")
    return metrics


def read_config(path: Path) -> dict[str, Any]:
    """A config.yaml. Raises BrokenFolderError, also where there is none."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _YAML_LOADER)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _broken(path, " ".join(str(error).split())) from error
    if not isinstance(content, dict):
        raise _broken(path, "it holds no settings")
    return content


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _broken(path, str(error)) from error
    if not isinstance(content, dict):
        raise _broken(path, "it is no set of named values")
    return content


def _broken(path: Path, why: str) -> BrokenFolderError:
    what = "the file, and the same command scores the run anew" if path.name == "metrics.json" else str(path.parent)
    again = "" if path.name == "metrics.json" else " to run it again"
    return BrokenFolderError(f"{path} is not whole ({why}): delete {what}{again}")
