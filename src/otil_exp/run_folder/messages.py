"""messages.csv: what operations a step of every kind was made of on rank 0, for a projection to other links."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path

from otil_exp.run_folder.whole import BrokenFolderError, write_text


@dataclass(frozen=True)
class MessageRow:
    """One line: an operation, and how often a step has it."""

    kind: str
    """Of the step: warmup, steady, refresh or final."""

    operation: str
    """As in otil_exp.traffic.Message, and so are the next three."""

    ranks: int
    bytes: int
    waits: bool
    per_step: float
    """Mean over the steps of this kind of a picture."""


_COLUMNS = [field.name for field in fields(MessageRow)]


def write_messages(path: Path, rows: Iterable[MessageRow]) -> None:
    """Write a messages.csv, whole or not at all."""
    buffer = StringIO()
    writer = csv.DictWriter(buffer, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) | {"waits": int(row.waits), "per_step": f"{row.per_step:.6g}"} for row in rows)
    write_text(path, buffer.getvalue())


def read_messages(path: Path) -> Sequence[MessageRow] | None:
    """The rows of a messages.csv; None where there is none, as in runs of earlier versions.

    Raises BrokenFolderError.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        if header != _COLUMNS:
            raise ValueError(f"its columns are {','.join(header)[:60]!r}")
        return [_row(*row) for row in rows]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise BrokenFolderError(f"{path} is not whole ({error}): delete {path.parent} to run it again") from error


def _row(kind: str, operation: str, ranks: str, size: str, waits: str, per_step: str) -> MessageRow:
    return MessageRow(kind, operation, int(ranks), int(size), bool(int(waits)), float(per_step))
