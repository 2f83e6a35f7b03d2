"""The figures of a run as cells of a table: value, distance to the reference, best of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from otil_exp.metrics.registry import METRICS, lookup
from otil_exp.report.collect import Run
from otil_exp.report.comparable import machine


@dataclass(frozen=True, kw_only=True)
class Column:
    """One metric of metrics.json as a column."""

    key: str
    header: str
    better: int = 0
    """-1: less is better, 1: more is better, 0: neither."""
    scale: float = 1
    form: str = ".3g"
    delta: str = ""
    """How a run is set against the reference run: speedup, difference, or natural (against the reference picture at the
    same rows, which metrics.json has beside); empty where the metric is a distance to the reference already."""
    core: bool = False
    """Shown from the start."""

    @property
    def is_time(self) -> bool:
        return self.key.startswith("latency/")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure as shown."""

    text: str = "-"
    value: float | None = None
    delta: str = ""
    title: str = ""
    """Sample count, standard error, and why not to trust it."""
    best: bool = False
    doubtful: bool = False


def column_of(key: str) -> Column:
    """The column of a metric, as its entry has it."""
    metric = lookup(key)
    return Column(
        key=key,
        header=metric.title,
        better=metric.better,
        scale=metric.scale,
        form=metric.form,
        delta=metric.delta,
        core=metric.core,
    )


CORE = tuple(column_of(metric.key) for metric in METRICS if metric.core)

PERCEPTUAL = ("ref/lpips_alex", "ref/effnet_lite0_5stage")
"""Perceptual distances to the reference, the preferred one first."""

SHOWN_AS_CORE = {column.key for column in CORE}


def columns(runs: Sequence[Run]) -> list[Column]:
    """Those that any of the runs has: the usual ones in their order, then all others."""
    keys = list(dict.fromkeys(key for run in runs for key in run.metrics if run.value(key) is not None))
    others = [key for key in keys if key not in SHOWN_AS_CORE and not key.startswith("reference/")]
    return [column for column in CORE if column.key in keys] + [column_of(key) for key in others]


def cells(runs: Sequence[Run], column: Column) -> list[Cell]:
    """One cell a run, the best of comparable finished ones marked; the reference takes no part in that."""
    found = [_cell(run, column) for run in runs]
    return [replace(cell, best=_is_best(i, runs, found, column)) for i, cell in enumerate(found)]


def time_doubt(run: Run) -> str | None:
    """Why the times of a run say nothing, or nothing beside its reference; None if they do."""
    why = run.record.get("times_meaningless")
    if why:
        return f"means nothing: {why}"
    if run.reference is not None and machine(run) != machine(run.reference):
        return f"another machine than the reference's, {machine(run.reference)}"
    return None


def _cell(run: Run, column: Column) -> Cell:
    value = run.value(column.key)
    if value is None:
        return Cell(title=str(run.metrics.get(column.key, {}).get("missing", "")))
    entry = run.metrics[column.key]
    error = entry.get("standard_error")
    doubt, enough = time_doubt(run) if column.is_time else None, lookup(column.key).enough
    few = f", too few to say much: needs {enough}" if enough and entry.get("n", 0) < enough else ""
    facts = [
        f"n = {entry.get('n', '?')}{few}",
        f"standard error {error * column.scale:.2g}" if error else "",
        doubt or "",
    ]
    return Cell(
        text=format(value * column.scale, column.form),
        value=value,
        delta=_delta(run, column, value),
        title="; ".join(fact for fact in facts if fact),
        doubtful=doubt is not None,
    )


def _delta(run: Run, column: Column, value: float) -> str:
    """The value beside the reference's: 1.83x, +0.41; empty where there is nothing to set it against."""
    if column.delta == "natural":
        natural = run.value(column.key.replace("seam/", "reference/"))
        return "" if natural is None else format((value - natural) * column.scale, "+.3g")
    other = run.reference.value(column.key) if run.reference else None
    if not column.delta or other is None:
        return ""
    if column.delta == "speedup":
        return f"{other / value:.2f}x" if value else ""
    return format((value - other) * column.scale, "+.3g")


def _is_best(index: int, runs: Sequence[Run], found: Sequence[Cell], column: Column) -> bool:
    def takes_part(run: Run, cell: Cell) -> bool:
        return run.status == "done" and not run.is_reference and cell.value is not None and not cell.doubtful

    pairs = list(zip(runs, found, strict=True))
    if not column.better or not takes_part(*pairs[index]):
        return False
    rivals = [c for r, c in pairs if takes_part(r, c) and r.picture_key == runs[index].picture_key]
    top = max(rivals, key=lambda cell: (cell.value or 0) * column.better)
    return len(rivals) > 1 and found[index].text == top.text
