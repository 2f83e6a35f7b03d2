"""steps.csv: what every rank did in every step of every picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

from otil_exp.run_folder.whole import write_text


@dataclass(frozen=True)
class StepRow:
    """One line of steps.csv: what one rank did in one step of one picture."""

    rank: int
    prompt: int
    """Index of the prompt in its set."""
    step: int
    kind: str
    """warmup, steady, refresh or final."""
    ms: float
    """Time from the end of the step before to the end of this one, milliseconds."""
    bytes_sent: int
    """Payload this rank put on the wire (otil_exp.traffic)."""
    collectives: int
    """Collectives this rank took part in."""
    repeat: int = 0
    """Which repetition of mode=benchmark."""


def read_steps(path: Path) -> list[StepRow]:
    """The rows of a steps.csv; none where there is no such file."""
    if not path.exists():
        return []
    kinds: dict[str, Callable[[str], Any]] = {"kind": str, "ms": float}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            StepRow(**{key: kinds.get(key, int)(value) for key, value in row.items()}) for row in csv.DictReader(file)
        ]


def write_steps(path: Path, rows: Sequence[StepRow]) -> None:
    """Write a steps.csv of these rows."""
    buffer = StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(StepRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) | {"ms": f"{row.ms:.4f}"} for row in rows)
    write_text(path, buffer.getvalue())
