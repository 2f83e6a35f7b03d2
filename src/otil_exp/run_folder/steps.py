"""steps.csv: what every rank did in every step of every picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from otil_exp.run_folder.whole import BrokenFolderError, write_text


class StepRow(NamedTuple):
    """One line of steps.csv: what one rank did in one step of one picture. A tuple: a run of 5,000 has millions."""

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


_COLUMNS = list(StepRow._fields)
_NEEDED = set(_COLUMNS) - set(StepRow._field_defaults)


class _Known(dict[str, Any]):
    """Texts that were converted before: few prompts, kinds and sizes stand in millions of lines, each once here."""

    def __init__(self, convert: Callable[[str], Any]) -> None:
        self._convert = convert

    def __missing__(self, text: str) -> Any:
        value = self[text] = self._convert(text)
        return value


def read_steps(path: Path, *, complete: bool = True) -> list[StepRow]:
    """The rows of a steps.csv; none where there is no such file.

    complete: whether its run is done. If not, its last line may be half of one: the writer is at it, or was killed.
    Raises BrokenFolderError for anything else that is no row.
    """
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8") as file:
            lines = csv.reader(_whole_lines(file, complete))
            header = next(lines, None)
            if header is None:
                raise ValueError("it lacks its first line, which is written whole")
            if not _NEEDED <= set(header) <= set(_COLUMNS):
                raise ValueError(f"its columns are {','.join(header)[:60]!r}")
            return list(_rows(header, lines))
    except (OSError, ValueError, csv.Error) as error:
        raise BrokenFolderError(f"{path} is not whole ({error}): delete {path.parent} to run it again") from error


def _whole_lines(file: Iterable[str], complete: bool) -> Iterator[str]:
    """Lines that have their end; raises ValueError for one without, where the file is said to be complete."""
    for line in file:
        if line.endswith("\n"):
            yield line
        elif complete:
            raise ValueError("its last line is cut")


def _rows(header: list[str], lines: Iterable[list[str]]) -> Iterator[StepRow]:
    whole = _Known(int).__getitem__
    kinds: dict[str, Callable[[str], Any]] = {"kind": _Known(str).__getitem__, "ms": float}
    fields = [(header.index(name), kinds.get(name, whole)) for name in _COLUMNS if name in header]
    for values in lines:
        if len(values) != len(header):
            raise ValueError(f"a line of it has {len(values)} values for {len(header)} columns")
        yield StepRow(*[convert(values[place]) for place, convert in fields])


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
    csv.writer(buffer, lineterminator="\n").writerows((*row[:4], f"{row.ms:.4f}", *row[5:]) for row in rows)
    return buffer.getvalue()
