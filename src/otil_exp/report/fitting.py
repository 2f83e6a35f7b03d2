"""A table that a narrow terminal can show as well: run by run, where its columns do not fit beside each other."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text


class FirstThatFits:
    """The first of some tables that is not wider than the console; the last one with its cells wrapped, or stacked."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in self._tables:
            measured = Measurement.get(console, options.update(width=10_000), table)
            if measured.maximum <= options.max_width:
                yield table
                return
        if fit(table, options.max_width - measured.maximum):
            yield table
        else:
            yield from stacked(table)


def fit(table: Table, missing: int) -> bool:
    """Make a table's columns narrower by `missing` characters (below 0) in all, and none than its longest word, which
    rich would cut; False where those are too wide."""
    widest = [max(map(cell_len, _texts(column))) for column in table.columns]
    words = [
        max(cell_len(word) for text in _texts(column) for word in text.split() or [""]) for column in table.columns
    ]
    left = sum(widest) + missing - sum(words)
    if left < 0:
        return False
    for column, least, most in zip(table.columns, words, widest, strict=True):
        column.width = min(most, least + left)
        left -= column.width - least
    return True


def stacked(table: Table) -> Iterator[Text]:
    """A row as a line of its first and last cell, then all others that say something, with their headers."""
    headers = [str(column.header) for column in table.columns]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        first, *middle, last = (str(cell) for cell in row)
        yield Text(f"{first}: {last}", overflow="fold")
        figures = [f"{header} {value}" for header, value in zip(headers[1:-1], middle, strict=True) if value != "-"]
        yield Text("  " + ", ".join(figures), overflow="fold")


def _texts(column: Column) -> list[str]:
    return [str(column.header), *map(str, column.cells)]
