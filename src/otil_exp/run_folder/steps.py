"""steps.csv: what every rank did in every step of every picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

from otil_exp.run_folder.whole import BrokenFolderError, write_text


@dataclass(frozen=True)
class StepRow:
    """One line of steps.csv: what one rank did in one step of one picture."""

    rank: int
    prompt: int
    """Index of the prompt in its set."""
    step: int
    kind: str
    """warmup, steady, refresh, or final: a last step that is steady, and followed by the exact gather."""
    ms: float
    """Time from the end of the step before to the end of this one, milliseconds."""
    bytes_sent: int
    """Payload this rank put on the wire (otil_exp.traffic)."""
    collectives: int
    """Collectives this rank took part in."""
    repeat: int = 0
    """Which repetition of mode=benchmark."""


_COLUMNS = [field.name for field in fields(StepRow)]
_NEEDED = {field.name for field in fields(StepRow) if field.default is MISSING}
_KINDS: dict[str, Callable[[str], Any]] = {"kind": str, "ms": float}


def read_steps(path: Path, *, complete: bool = True) -> list[StepRow]:
    """The rows of a steps.csv; none where there is no such file.

    complete: whether its run is done. If not, its last line may be half of one: the writer is at it, or was killed.
    Raises BrokenFolderError for anything else that is no row.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        if lines.pop() and complete:
            raise ValueError("its last line is cut")
        if not lines:
            raise ValueError("it lacks its first line, which is written whole")
        header, *rows = csv.reader(lines)
        if not _NEEDED <= set(header) <= set(_COLUMNS):
            raise ValueError(f"its columns are {','.join(header)[:60]!r}")
        return [_row(header, row) for row in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise BrokenFolderError(f"{path} is not whole ({error}): delete {path.parent} to run it again") from error


def write_steps(path: Path, rows: Iterable[StepRow]) -> None:
    """Write a steps.csv of these rows, whole or not at all."""
    write_text(path, ",".join(_COLUMNS) + "\n" + _lines(rows))


def append_steps(path: Path, rows: Sequence[StepRow]) -> None:
    """Add rows to a steps.csv, and begin it with the first ones: a picture's cost no more than the picture's before it.

    They are on the disk when this returns.
    """
    if not path.exists():
        write_steps(path, rows)
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(_lines(rows))
        file.flush()
        os.fsync(file.fileno())


def _lines(rows: Iterable[StepRow]) -> str:
    buffer = StringIO()
    writer = csv.DictWriter(buffer, _COLUMNS, lineterminator="\n")
    writer.writerows(asdict(row) | {"ms": f"{row.ms:.4f}"} for row in rows)
    return buffer.getvalue()


def _row(header: list[str], values: list[str]) -> StepRow:
    return StepRow(**{key: _KINDS.get(key, int)(value) for key, value in zip(header, values, strict=True)})
