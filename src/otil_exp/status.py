"""`otil-exp-status` and `otil-exp-cancel`: how a grid stands, and the end of its jobs, without composing it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.lock import is_held
from otil_exp.run_folder.naming import names
from otil_exp.run_folder.whole import BrokenFolderError
from otil_exp.slurm.ledger import Entry, Ledger
from otil_exp.slurm.queue import QueueError, Standing, cancel
from otil_exp.terminal import console as as_typed
from otil_exp.terminal import for_a_reader

EXAMPLES = """examples:
  {command} demo                    the grid in outputs/demo
  {command} /scratch/me/sweep       a grid somewhere else"""

ORDER = ("running", "queued", "failed", "interrupted", "ended", "broken", "done")
"""States of cells, those that want to be looked at first."""


@dataclass(frozen=True, kw_only=True)
class CellStatus:
    """How a cell stands."""

    title: str
    state: str
    """One of ORDER: interrupted ones began, and nobody runs them; ended ones never began, and their job is gone."""

    since: str | None = None
    """When the state began, or a finished run; ISO 8601."""

    until: str | None = None
    """When a run ended."""

    job: str = ""
    pictures: str = ""
    """Made, of how many."""

    why: str = ""


@dataclass
class Queue:
    """The jobs of a grid that Slurm has."""

    jobs: dict[str, tuple[Entry, Standing]] = field(default_factory=dict)
    """By name of the run folder."""

    silent: str = ""
    """Why Slurm could not be asked."""


@for_a_reader()
def status_main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `otil-exp-status`; returns the exit code."""
    console = as_typed()
    folder = _grid_folder("otil-exp-status", "How a grid stands: from its run folders and the queue.", argv)
    try:
        cells, queue = look(folder)
    except (ValueError, FileNotFoundError) as error:
        console.print(str(error))
        return 1
    if queue.silent:
        console.print(f"the queue is unknown: {queue.silent}")
    if not cells:
        console.print(f"no cell of {folder} was begun, and Slurm has taken none")
        return 0
    console.print(_table(cells), soft_wrap=False)
    for cell in cells:
        if cell.why:
            console.print(f"{cell.title}: {cell.why}")
    counts = Counter(cell.state for cell in cells)
    console.print(f"{len(cells)} cells: " + ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state]))
    return 0


@for_a_reader()
def cancel_main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `otil-exp-cancel`; returns the exit code."""
    console = as_typed()
    folder = _grid_folder("otil-exp-cancel", "Cancel the Slurm jobs of a grid; what is finished stays.", argv)
    try:
        _check(folder)
        ledger, found = Ledger(folder), {}
        if ledger.entries:
            with ledger.locked(console.print):  # a command that is submitting now would go on
                found = ledger.in_queue(ledger.entries)
                cancel(entry.job for entry, _ in found.values())
    except (QueueError, ValueError, FileNotFoundError) as error:
        console.print(f"nothing was cancelled: {error}")
        return 1
    for entry, standing in found.values():
        console.print(f"{entry.title}: cancelled job {entry.job} ({standing.state})")
    if not found:
        console.print(f"no job of {folder} is in the queue")
    return 0


def look(folder: Path) -> tuple[list[CellStatus], Queue]:
    """How every cell of a grid stands that was begun or submitted, and what Slurm said.

    Raises FileNotFoundError for a folder that is no grid, ValueError for a ledger that cannot be read.
    """
    _check(folder)
    ledger = Ledger(folder)
    entries = ledger.entries
    queue = Queue()
    try:
        queue.jobs = ledger.in_queue(entries)
    except QueueError as error:
        queue.silent = str(error)
    begun = [path.parent.name for path in sorted(folder.glob("*/record.json"))]
    cells = [RunFolder(folder / name) for name in dict.fromkeys([*entries, *begun])]
    typed = [entries[cell.path.name].title if cell.path.name in entries else "" for cell in cells]
    titles = [short or name for short, name in zip(_apart(typed), names(cells), strict=True)]
    found = [_cell(cell, entries.get(cell.path.name), queue, title) for cell, title in zip(cells, titles, strict=True)]
    return sorted(found, key=lambda cell: ORDER.index(cell.state)), queue


def _apart(titles: Sequence[str]) -> list[str]:
    """What was typed for each cell, without the settings that all of them share; "" where nothing is known."""
    words = [title.split() for title in titles if title]
    shared = set.intersection(*map(set, words)) if len(words) > 1 else set()
    return [" ".join(word for word in title.split() if word not in shared) or title for title in titles]


def _cell(folder: RunFolder, entry: Entry | None, queue: Queue, title: str) -> CellStatus:
    try:
        record = folder.record
    except BrokenFolderError as error:
        return CellStatus(title=title if entry else folder.path.name, state="broken", why=str(error))
    made = len(list(folder.images.glob("*.png")))
    pictures = f"{made} of {len(record['prompts'])}" if "prompts" in record else ""
    began = [record.get("started"), *record.get("resumed", [])][-1]
    status = str(record.get("status", ""))
    if folder.path.name in queue.jobs:
        assert entry is not None
        standing = queue.jobs[folder.path.name][1]
        if status == "running" and standing.state != "PENDING":
            return CellStatus(title=title, state="running", since=began, job=entry.job, pictures=pictures)
        # One that began may be back in the queue; in a pack, it may wait for its turn in a job that runs.
        waits = "which runs and has not come to it yet" if standing.state == "RUNNING" else standing.state
        why = f"in job {entry.job}, {standing.reason or waits}" if status != "done" else ""
        state = "done" if status == "done" else "queued"
        return CellStatus(title=title, state=state, since=entry.submitted, job=entry.job, pictures=pictures, why=why)
    if status == "running":
        local = is_held(folder.path / ".lock")
        why = "" if local else f"its process left no word: the same command goes on ({folder.logs})"
        state = "running" if local else "interrupted"
        return CellStatus(title=title, state=state, since=began, pictures=pictures, why=why)
    return CellStatus(
        title=title,
        state={"done": "done", "failed": "failed", "preempted": "interrupted"}.get(status, "ended"),
        since=began,
        until=record.get("ended"),
        job=entry.job if entry else "",
        pictures=pictures,
        why=_why_ended(status, record, folder, entry),
    )


def _why_ended(status: str, record: dict[str, Any], folder: RunFolder, entry: Entry | None) -> str:
    if status == "failed":
        return f"rank {record.get('failed_rank')} failed: {record.get('error')} ({folder.logs})"
    if status in ("done", "preempted"):
        return ""
    job = entry.job if entry else "?"
    return f"job {job} is no longer in the queue and it never began: see {folder.path.parent / '.submitit' / job}"


def _table(cells: Sequence[CellStatus]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for header in ("cell", "state", "for", "pictures", "job"):
        table.add_column(header, overflow="fold")
    for cell in cells:
        table.add_row(*(Text(word) for word in (cell.title, cell.state, _for(cell), cell.pictures, cell.job)))
    return table


def _for(cell: CellStatus) -> str:
    """How long a cell has been in its state, or took: h:mm:ss."""
    if cell.since is None:
        return ""
    end = datetime.fromisoformat(cell.until) if cell.until else datetime.now(UTC)
    return str(timedelta(seconds=round((end - datetime.fromisoformat(cell.since)).total_seconds())))


def _grid_folder(command: str, about: str, argv: Sequence[str] | None) -> Path:
    """The folder of the grid that was typed: itself, or its name below ./outputs."""
    parser = argparse.ArgumentParser(
        command,
        description=about,
        epilog=EXAMPLES.format(command=command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("grid", metavar="NAME", help="name of a grid below ./outputs, or its folder")
    typed = Path(parser.parse_args(argv).grid).expanduser()
    places = [typed, "outputs" / typed]
    # A folder of the same name, such as the docs/ of a checkout, is no grid.
    unknown = places[-1] if typed.name == str(typed) else typed
    return next((place for place in places if _is_grid(place)), unknown).absolute()


def _is_grid(folder: Path) -> bool:
    return (folder / ".submitit").is_dir() or any(folder.glob("*/record.json"))


def _check(folder: Path) -> None:
    """Raise FileNotFoundError, with what to type, for a folder that no grid has been run in."""
    if not _is_grid(folder):
        raise FileNotFoundError(
            f"{folder} holds no grid: type the name= of one below ./outputs, or its folder, output_dir/NAME"
        )
