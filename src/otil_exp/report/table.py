"""The summary table of a grid, from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otil_exp.report.collect import Run, collect
from otil_exp.report.columns import ALWAYS, CORE, PSNR, STEP_MS
from otil_exp.report.comparable import meaningless
from otil_exp.report.figures import figures
from otil_exp.report.fitting import FirstThatFits
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.naming import variants
from otil_exp.run_folder.snapshot import snapshots

CAPTION = "a step after warm-up: ms of rank 0, MB a rank sends; to the reference: PSNR, grey levels at the seam"

WITH_ERRORS = f"{CAPTION}; ±: standard error over prompts"


def summary(folders: Sequence[RunFolder]) -> RenderableType:
    """Table of method, cost and quality, then where the pictures are, then what failed and why."""
    folders = snapshots(folders)
    runs = collect(folders)
    tables = (_table(folders, runs, errors=True), _table(folders, runs, errors=False))
    return Group(FirstThatFits(*tables), *_paths(runs), *_warnings(runs), *_failures(runs))


def _table(folders: Sequence[RunFolder], runs: Sequence[Run], *, errors: bool) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,  # narrow enough for 80 columns
        padding=0,
        caption=WITH_ERRORS if errors else CAPTION,
    )
    for header, align in (("method", "left"), ("topology", "left"), ("k", "right"), ("refresh", "right")):
        table.add_column(header, justify=align)  # type: ignore[arg-type]
    shown = [c for c in CORE if c.console and (c.key in ALWAYS or any(run.value(c.key) is not None for run in runs))]
    for column in shown:
        table.add_column(column.header, justify="right")
    table.add_column("status", justify="right")
    by_column = [figures(runs, column) for column in shown]
    for i, (run, variant) in enumerate(zip(runs, variants(folders), strict=True)):
        effective = run.record.get("effective", {})
        row = [
            f"{run.method} {variant}".strip(),
            run.topology,
            str(effective.get("k") or "-"),
            _renewal(effective),
            *(column[i].with_error if errors else column[i].text for column in by_column),
            run.status,
        ]
        table.add_row(*map(Text, row))  # as typed: no markup
    return table


def _renewal(effective: dict[str, Any]) -> str:
    """As in a name: in how many steps the layers' context is renewed, at once or in turns."""
    rolling = "rolling" if effective.get("refresh_rolling") else ""
    return f"{rolling}{effective['refresh_period']}" if effective.get("refresh_period") else "-"


def _paths(runs: Sequence[Run]) -> list[Text]:
    shown = [run for run in runs if run.folder.images.exists()]
    return [Text(f"{run.label}: {run.folder.images}", overflow="fold") for run in shown]


def _warnings(runs: Sequence[Run]) -> list[Text]:
    lines = {f"ms/step mean nothing here: {why}" for run in runs if (why := meaningless(run, STEP_MS.key))}
    lines |= {f"PSNR: {missing}" for run in runs if (missing := run.entry(PSNR.key).get("missing"))}
    return [Text(line, style="yellow") for line in sorted(lines)]


def _failures(runs: Sequence[Run]) -> list[Text]:
    return [Text(_failure(run), style="red") for run in runs if run.reason]


def _failure(run: Run) -> str:
    if run.status == "failed":
        return f"{run.label} failed on {run.reason} ({run.folder.path})"
    return f"{run.label} is broken: {run.reason}" if run.status == "broken" else f"{run.label} {run.reason}"
