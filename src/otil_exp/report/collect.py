"""Runs for a report, from their folders alone: finished, failed, half-done and broken ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.naming import names, said_by
from otil_exp.run_folder.reference import References, prompt_keys
from otil_exp.run_folder.snapshot import Snapshot, snapshots


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as its folder has it; whatever is not there yet is empty."""

    number: int
    """Position in the report from 1; 0 for a reference that is not part of it."""
    label: str
    """Method, topology and settings, different for all runs of a report."""
    folder: RunFolder
    record: dict[str, Any]
    metrics: dict[str, Any]
    config: dict[str, Any]
    is_reference: bool
    reference: Run | None
    """The finished run that this one's pictures were compared with."""

    @property
    def method(self) -> str:
        return str(self.record.get("method") or "unknown")

    @property
    def topology(self) -> str:
        return str(self.record.get("topology", {}).get("name", "-"))

    @property
    def status(self) -> str:
        """As in the record; broken: a file is not whole; missing: it never began."""
        return str(self.record.get("status", "missing"))

    @property
    def picture_key(self) -> str:
        """Equal for runs whose pictures of a prompt can be compared."""
        return str(self.record.get("picture_key"))

    @property
    def reason(self) -> str | None:
        """Why there is no result: which rank failed and why, or which file is broken; None for other runs."""
        if self.status == "failed":
            return f"rank {self.record.get('failed_rank', '?')}: {self.record.get('error', '?')}"
        if self.status == "broken":
            return str(self.record["error"])
        if self.status == "missing" and not self.folder.planned:
            why = "has a config.yaml and no record.json" if self.config else "has a record.json that says nothing"
            return f"never began: {self.folder.path} {why}"
        return None

    @property
    def prompts(self) -> list[dict[str, Any]]:
        """index, text and seed of every prompt."""
        return list(self.record.get("prompts", []))

    @cached_property
    def prompts_and_seeds(self) -> str:
        """Equal for runs of the same prompts and seeds; worked out once, of thousands."""
        said = str([(prompt["text"], prompt["seed"]) for prompt in self.prompts])
        return hashlib.sha256(said.encode()).hexdigest()

    def entry(self, key: str) -> dict[str, Any]:
        """A metric as metrics.json has it; empty where it is not there."""
        return dict(self.metrics.get(key, {}))

    def value(self, key: str) -> float | None:
        """A metric's value; None where it was not measured, or is no number (NaN)."""
        value = self.entry(key).get("value")
        return None if value is None or math.isnan(value) else float(value)

    def per_picture(self, key: str) -> dict[str, float]:
        """A metric of single pictures by prompt, the mean over a picture's seams; empty for others."""
        scores = self.entry(key).get("per_image") or {}
        return {prompt: value for prompt, score in scores.items() if (value := _mean(score)) is not None}

    def of_picture(self, key: str, prompt: int) -> float | None:
        """A metric of one picture, the mean over its seams; None where there is none."""
        return _mean((self.entry(key).get("per_image") or {}).get(f"{prompt:02d}"))


def find_folders(paths: Sequence[Path]) -> list[Snapshot]:
    """The run folders at these paths or right below them, references first, then by method, ranks, k and refresh.

    One with a file that is not whole is `broken`, and the others are as they are. Raises FileNotFoundError when there
    is none.
    """
    candidates = (p for path in paths for p in (path, *sorted(path.glob("*"))))
    unique = dict.fromkeys(p for p in candidates if (p / "record.json").exists() or (p / "config.yaml").exists())
    if not unique:
        looked = ", ".join(map(str, paths))
        below = dict.fromkeys(str(file.parents[1]) for path in paths for file in sorted(path.glob("*/*/record.json")))
        what = " ".join(below) or "outputs/NAME or outputs/NAME/SIGNATURE"
        raise FileNotFoundError(f"no run folder in {looked}: name {what}")
    return sorted(snapshots([RunFolder(path) for path in unique]), key=_order)


def collect(folders: Sequence[RunFolder]) -> list[Run]:
    """Read the runs of a report, each with its reference, numbered in the order given."""
    listed = snapshots(folders)
    references = References(listed)
    labels = dict(zip((folder.path for folder in listed), names(listed), strict=True))
    numbers = {folder.path: number for number, folder in enumerate(listed, 1)}
    made: dict[Path, Run] = {}

    def read(folder: Snapshot) -> Run:
        if folder.path not in made:
            record, config = said_by(folder)
            beside = _reference(folder, listed, references)
            made[folder.path] = Run(
                number=numbers.get(folder.path, 0),
                label=labels.get(folder.path, "reference"),
                folder=folder,
                record=record,
                metrics=folder.metrics,
                config=config,
                is_reference=folder.is_reference,
                reference=None if beside is None else made.get(beside.path) or read(*snapshots([beside])),
            )
        return made[folder.path]

    return [read(folder) for folder in listed]


def _reference(folder: Snapshot, listed: Sequence[Snapshot], references: References) -> RunFolder | None:
    """What a run's pictures were compared with; a reference that has lost a picture is still one for the others."""
    own = folder.record
    if folder.broken or folder.is_reference or not {"is_reference", "picture_key", "prompts"} <= own.keys():
        return None
    found = references.of(folder)
    if found is not None:
        return found
    alike = [other for other in listed if other.is_reference and other.finished]
    return next((other for other in alike if _covers(other.record, own)), None)


def _covers(reference: dict[str, Any], own: dict[str, Any]) -> bool:
    same = reference["picture_key"] == own["picture_key"]
    return same and prompt_keys(own["prompts"]) <= prompt_keys(reference["prompts"])


def _mean(score: float | list[float] | None) -> float | None:
    if isinstance(score, list):
        return fmean(score) if score else None
    return score


def _order(folder: RunFolder) -> tuple[Any, ...]:
    record, _ = said_by(folder)
    effective, topology = record.get("effective", {}), record.get("topology", {})
    return (
        not (record and folder.is_reference),
        str(record.get("method")),
        topology.get("world_size", 0),
        not topology.get("split_batch"),
        effective.get("k") or 0,
        effective.get("refresh_period") or 0,
    )
