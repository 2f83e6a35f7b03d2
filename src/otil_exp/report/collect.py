"""Runs for a report, from their folders alone: finished, failed and half-done ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otil_exp.report.variants import variants
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import References
from otil_exp.run_folder.snapshot import Snapshot, snapshots


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
        """Which rank failed and why, or which file is broken; None for other runs."""
        if self.status == "broken":
            return str(self.record["error"])
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


def find_folders(paths: Sequence[Path]) -> list[Snapshot]:
    """The run folders at these paths or right below them, references first, then by method, ranks, k and refresh.

    One with a file that is not whole is `broken`, and the others are as they are. Raises FileNotFoundError when there
    is none.
    """
    candidates = (p for path in paths for p in (path, *sorted(path.glob("*"))))
    unique = dict.fromkeys(p for p in candidates if (p / "record.json").exists() or (p / "config.yaml").exists())
    found = snapshots([RunFolder(path) for path in unique])
    if not found:
        looked = ", ".join(map(str, paths))
        raise FileNotFoundError(f"no run folder in {looked}: name outputs/NAME or outputs/NAME/SIGNATURE")
    return sorted(found, key=lambda folder: _order(folder.record))


def collect(folders: Sequence[RunFolder]) -> list[Run]:
    """Read the runs of a report, each with its reference, numbered in the order given."""
    folders, references = snapshots(folders), References()
    labels = _labels(folders)
    numbers = {folder.path: number for number, folder in enumerate(folders, 1)}
    made: dict[Path, Run] = {}

    def read(folder: Snapshot) -> Run:
        if folder.path not in made:
            record = folder.record
            comparable = not folder.broken and {"is_reference", "picture_key", "prompts"} <= record.keys()
            beside = references.of(folder) if comparable else None
            made[folder.path] = Run(
                number=numbers.get(folder.path, 0),
                label=labels.get(folder.path, "reference"),
                folder=folder,
                record=record,
                metrics=folder.metrics,
                config=folder.config,
                reference=None if beside is None else read(Snapshot(beside)),
            )
        return made[folder.path]

    return [read(folder) for folder in folders]


def _order(record: dict[str, Any]) -> tuple[Any, ...]:
    method, effective, topology = record.get("method", "?"), record.get("effective", {}), record.get("topology", {})
    ranks = topology.get("world_size", 0), not topology.get("split_batch")
    return method != "reference", method, *ranks, effective.get("k") or 0, effective.get("refresh_period") or 0


def _labels(folders: Sequence[RunFolder]) -> dict[Path, str]:
    """Method, ranks, k and refresh, then what else tells alike runs apart, their folder's name if nothing does."""
    labels = [
        ", ".join(filter(None, (_short_label(folder.record), variant)))
        for folder, variant in zip(folders, variants(folders), strict=True)
    ]
    return {
        folder.path: label if labels.count(label) == 1 else f"{label} ({folder.path.name})"
        for folder, label in zip(folders, labels, strict=True)
    }


def _short_label(record: dict[str, Any]) -> str:
    method, effective, topology = record.get("method", "?"), record.get("effective", {}), record.get("topology", {})
    if method == "reference" or not topology:
        return str(method)
    parts = [f"{method} {topology['world_size']}{' split' if topology['split_batch'] else ''}"]
    parts += [f"k {effective['k']}"] if effective.get("k") else []
    parts += [f"refresh {effective['refresh_period']}"] if effective.get("refresh_period") else []
    return ", ".join(parts)
