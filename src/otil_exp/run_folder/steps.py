"""steps.csv: what every rank did in every step of every picture."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from otil_exp.run_folder.whole import BrokenFolderError, write_text


class StepRow(NamedTuple):
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


_COLUMNS = StepRow._fields
_NEEDED = set(_COLUMNS) - set(StepRow._field_defaults)

_TYPES = dict.fromkeys(_COLUMNS, "i8") | {"rank": "i4", "prompt": "i4", "step": "i4", "repeat": "i4", "ms": "f8"}
_LONGEST_KIND = 16
"""Bytes of a kind's name."""


@dataclass(frozen=True, eq=False)
class Steps(Sequence[StepRow]):
    """Rows as columns: a run of 5,000 pictures on 8 ranks has two million. An item is a `StepRow`."""

    columns: dict[str, np.ndarray]
    """(n,) each, by name; `kind` holds indices of `kinds`."""

    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[StepRow]) -> Steps:
        """These rows; what is columns already stays."""
        if isinstance(rows, Steps):
            return rows
        by_name = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=False)) or dict.fromkeys(_COLUMNS, ())
        kinds = tuple(dict.fromkeys(by_name["kind"]))
        by_name["kind"] = tuple(map(kinds.index, by_name["kind"]))
        return cls({name: np.array(values, _TYPES[name]) for name, values in by_name.items()}, kinds)

    def column(self, name: str) -> np.ndarray:
        """(n,): a field of all rows, but `kind`, for which see `of_kind`."""
        return self.columns[name]

    def of_kind(self, kind: str) -> np.ndarray:
        """(n,) bool: the rows of a kind of step."""
        found: np.ndarray = self.columns["kind"] == (self.kinds.index(kind) if kind in self.kinds else -1)
        return found

    def pictures(self) -> np.ndarray:
        """(n,) int64: one number a prompt and repetition, in their order."""
        repeat = self.columns["repeat"]
        found: np.ndarray = self.columns["prompt"] * (1 + np.int64(repeat.max(initial=0))) + repeat
        return found

    def where(self, mask: np.ndarray) -> Steps:
        """The rows that a mask (n,) bool picks."""
        return Steps({name: values[mask] for name, values in self.columns.items()}, self.kinds)

    def __len__(self) -> int:
        return len(self.columns["rank"])

    @overload
    def __getitem__(self, index: int) -> StepRow: ...
    @overload
    def __getitem__(self, index: slice) -> Steps: ...
    def __getitem__(self, index: int | slice) -> StepRow | Steps:
        if isinstance(index, slice):
            return Steps({name: values[index] for name, values in self.columns.items()}, self.kinds)
        return self._row([self.columns[name][index].item() for name in _COLUMNS])

    def __iter__(self) -> Iterator[StepRow]:
        columns = [self.columns[name].tolist() for name in _COLUMNS]
        return map(self._row, map(list, zip(*columns, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def _row(self, values: list[Any]) -> StepRow:
        values[3] = self.kinds[values[3]]
        return StepRow(*values)


def read_steps(path: Path, *, complete: bool = True) -> Steps:
    """The rows of a steps.csv; none where there is no such file.

    complete: whether its run is done. If not, its last line may be half of one: the writer is at it, or was killed.
    Raises BrokenFolderError for anything else that is no row.
    """
    if not path.exists():
        return Steps.of([])
    try:
        header, lines = _looked_through(path, complete)
        if not _NEEDED <= set(header) <= set(_COLUMNS):
            raise ValueError(f"its columns are {','.join(header)[:60]!r}")
        return _parsed(path, header, lines)
    except (OSError, ValueError, OverflowError) as error:
        raise BrokenFolderError(f"{path} is not whole ({error}): delete {path.parent} to run it again") from error


def _looked_through(path: Path, complete: bool) -> tuple[list[str], int]:
    """The columns' names, and how many lines come after them that have their end.

    Raises ValueError where the first line, or the last one of a file that is said to be complete, has none.
    """
    with path.open("rb") as file:
        header, lines = file.readline(), 0
        last = header[-1:]
        while block := file.read(1 << 20):
            if b"\n\n" in block:
                raise ValueError("a line of it is empty")
            lines, last = lines + block.count(b"\n"), block[-1:]
    if not header.endswith(b"\n"):
        raise ValueError("it lacks its first line, which is written whole")
    if complete and last != b"\n":
        raise ValueError("its last line is cut")
    return header.decode().rstrip("\n").split(","), lines


def _parsed(path: Path, header: list[str], lines: int) -> Steps:
    """The first `lines` lines after the header."""
    types = [(name, f"S{_LONGEST_KIND}" if name == "kind" else _TYPES[name]) for name in header]
    rows = np.zeros(0, types)
    if lines > 0:  # numpy warns of a file without rows
        read: Any = {"delimiter": ",", "comments": None, "skiprows": 1, "max_rows": lines, "encoding": "utf-8"}
        rows = np.loadtxt(path, types, ndmin=1, **read)
    if len(rows) != lines:  # numpy leaves empty ones out
        raise ValueError("a line of it is empty")
    columns = {name: rows[name].copy() for name in header if name != "kind"}
    columns["kind"], kinds = _coded(rows["kind"])
    for name, default in StepRow._field_defaults.items():
        columns.setdefault(name, np.full(len(rows), default, _TYPES[name]))
    return Steps(columns, kinds)


def _coded(words: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which of the words each is, and the words, in the order in which they come: there are few."""
    codes, kinds = np.full(len(words), -1), list[str]()
    while len(left := np.flatnonzero(codes < 0)):
        kinds.append(words[left[0]].decode())
        codes[words == words[left[0]]] = len(kinds) - 1
    return codes, tuple(kinds)


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
