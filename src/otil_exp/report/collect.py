"""Runs for a report, from their folders alone: finished, failed and half-done ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otil_exp.run.folder import RunFolder
from otil_exp.run.reference import find_reference

UNLABELLED = ("name", "output_dir", "tracker", "metrics", "launch")
"""Parts of a config that never tell two runs apart."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as its folder has it; whatever is not there yet is empty."""

    number: int
    """Position in the report from 1; 0 for a reference that is not part of it."""
    label: str
    """Method and settings, different for all runs of a report."""
    folder: RunFolder
    record: dict[str, Any]
    metrics: dict[str, Any]
    config: dict[str, Any]
    reference: Run | None
    """The finished run that this one was compared with."""

    @property
    def method(self) -> str:
        return str(self.record.get("method", "?"))

    @property
    def status(self) -> str:
        return str(self.record.get("status", "missing"))

    @property
    def is_reference(self) -> bool:
        return self.method == "reference"

    @property
    def picture_key(self) -> str:
        """Equal for runs whose pictures of a prompt can be compared."""
        return str(self.record.get("picture_key"))

    @property
    def reason(self) -> str | None:
        """Which rank failed and why; None for runs that did not."""
        if self.status != "failed":
            return None
        return f"rank {self.record.get('failed_rank', '?')}: {self.record.get('error', '?')}"

    @property
    def prompts(self) -> list[dict[str, Any]]:
        """index, text and seed of every prompt."""
        return list(self.record.get("prompts", []))

    def value(self, key: str) -> float | None:
        """A metric's value; None where it was not measured."""
        value = self.metrics.get(key, {}).get("value")
        return None if value is None else float(value)


def find_folders(paths: Sequence[Path]) -> list[RunFolder]:
    """The run folders at these paths or right below them, references first, then by method, ranks, k and refresh.

    Raises FileNotFoundError when there is none.
    """
    candidates = (p for path in paths for p in (path, *sorted(path.glob("*"))))
    unique = dict.fromkeys(p for p in candidates if (p / "record.json").exists() or (p / "config.yaml").exists())
    if not unique:
        looked = ", ".join(map(str, paths))
        raise FileNotFoundError(f"no run folder in {looked}: name outputs/NAME or outputs/NAME/SIGNATURE")
    found = [RunFolder(path) for path in unique]
    return sorted(found, key=lambda folder: _order(folder.record))


def collect(folders: Sequence[RunFolder]) -> list[Run]:
    """Read the runs of a report, each with its reference, numbered in the order given."""
    labels = _labels(folders)
    numbers = {folder.path: number for number, folder in enumerate(folders, 1)}
    made: dict[Path, Run] = {}

    def read(folder: RunFolder) -> Run:
        if folder.path not in made:
            record = folder.record
            beside = find_reference(folder) if {"method", "picture_key", "prompts"} <= record.keys() else None
            made[folder.path] = Run(
                number=numbers.get(folder.path, 0),
                label=labels.get(folder.path, "reference"),
                folder=folder,
                record=record,
                metrics=folder.metrics,
                config=_config(folder),
                reference=None if beside is None else read(beside),
            )
        return made[folder.path]

    return [read(folder) for folder in folders]


def _order(record: dict[str, Any]) -> tuple[Any, ...]:
    method, effective, topology = record.get("method", "?"), record.get("effective", {}), record.get("topology", {})
    ranks = topology.get("world_size", 0), not topology.get("split_batch")
    return method != "reference", method, *ranks, effective.get("k") or 0, effective.get("refresh_period") or 0


def _config(folder: RunFolder) -> dict[str, Any]:
    return folder.config if (folder.path / "config.yaml").exists() else {}


def _labels(folders: Sequence[RunFolder]) -> dict[Path, str]:
    """Method, ranks, k and refresh; runs that share those are told apart by what else their configs differ in."""
    alike: dict[str, list[RunFolder]] = {}
    for folder in folders:
        alike.setdefault(_short_label(folder.record), []).append(folder)
    labels = {}
    for short, same in alike.items():
        flat = [dict(_flatten(_config(folder))) for folder in same]
        keys = list(dict.fromkeys(key for config in flat for key in config))
        telling = [key for key in keys if len({str(config.get(key)) for config in flat}) > 1]
        told = ["".join(f", {key}={config.get(key)}" for key in telling) for config in flat]
        unique = len(set(told)) == len(same)
        for folder, more in zip(same, told, strict=True):
            labels[folder.path] = short + more + ("" if unique else f" ({folder.path.name})")
    return labels


def _short_label(record: dict[str, Any]) -> str:
    method, effective, topology = record.get("method", "?"), record.get("effective", {}), record.get("topology", {})
    if method == "reference" or not topology:
        return str(method)
    parts = [f"{method} {topology['world_size']}{' split' if topology['split_batch'] else ''}"]
    parts += [f"k {effective['k']}"] if effective.get("k") else []
    parts += [f"refresh {effective['refresh_period']}"] if effective.get("refresh_period") else []
    return ", ".join(parts)


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if not prefix and key in UNLABELLED:
            continue
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
