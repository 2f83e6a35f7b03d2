"""W&B's local files, read back with wandb's own command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otil_exp.run_folder.folder import RunFolder


@dataclass(frozen=True)
class Logged:
    """One W&B run as its file has it."""

    run: dict[str, Any]
    history: list[dict[str, Any]]
    """What was logged, in order, with _step."""
    summary: dict[str, Any]
    files: list[str]
    exit_code: int | None
    """None: the process was killed."""

    config: dict[str, Any]
    """As it was at the end, without what wandb keeps there of its charts."""

    @property
    def names(self) -> set[str]:
        """Keys of the history; those of media without their parts."""
        found = {name for entry in self.history for name in entry if not name.startswith("_")}
        return {name.rpartition(".")[0] if "." in name else name for name in found}


def runs_of(folder: RunFolder) -> list[Path]:
    return sorted(folder.path.glob("wandb/*run-*"))


def read(path: Path) -> Logged:
    """One run's folder, offline-run-..."""
    inspect = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    text = subprocess.run(inspect, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    records = [json.loads(line) for line in text.splitlines() if line.strip()]
    kinds: dict[str, list[Any]] = {}
    for record in records:
        kinds.setdefault(record["type"], []).append(record.get(record["type"]))
    return Logged(
        run=kinds["run"][0],
        config=kinds["run"][0]["config"]["update"]
        | {
            key: value
            for update in kinds.get("config", [])
            for key, value in update.get("update", {}).items()
            if not key.startswith("_wandb")
        },
        history=[entry["item"] | {"_step": entry["step"]["num"]} for entry in kinds.get("history", [])],
        summary={key: value for update in kinds.get("summary", []) for key, value in update.get("update", {}).items()},
        files=[file["path"] for entry in kinds.get("files", []) for file in entry["files"]],
        exit_code=kinds["exit"][-1].get("exit_code", 0) if "exit" in kinds else None,
    )
