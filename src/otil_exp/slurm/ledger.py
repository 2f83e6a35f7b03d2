"""The ledger of a grid: which job runs which cell, so that a command typed twice does not submit twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from otil_exp.run_folder.lock import BusyError, held
from otil_exp.slurm.queue import Standing, cluster_name, standings

WAIT_S = 600.0
"""How long another command may go on submitting to the same grid, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The last job that a cell was submitted as."""

    job: str
    """Its number, "21_0" for an element of an array."""

    cluster: str
    """Slurm's name of the cluster."""

    submitted: str
    """When, by this program's clock: UTC, ISO 8601."""

    script: str
    """The batch script, as `queue.Standing` has it."""

    title: str
    """The cell as it was typed."""

    def is_in_queue(self, standing: Standing) -> bool:
        """Whether the job that Slurm has under this number is ours, and has not ended.

        Slurm counts from 1 again when it loses its state; its submit time moves with every requeue.
        """
        return standing.under_way and self.script in ("", standing.script)  # "": Slurm could not be asked then


class Ledger:
    """A file of the grid. What is read of it holds until the lock is given back."""

    def __init__(self, grid_folder: Path) -> None:
        self.folder = grid_folder / ".submitit"
        self._path = self.folder / "jobs.json"

    @contextmanager
    def locked(self, say: Callable[[str], object]) -> Iterator[None]:
        """Keep other commands from submitting to this grid. Raises ValueError if one does for longer than WAIT_S."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:
            try:
                lock.enter_context(
                    held(
                        self._path.with_suffix(".lock"),
                        WAIT_S,
                        lambda holder: say(f"{holder} is submitting to this grid: waiting for it"),
                    )
                )
            except BusyError as holder:
                raise ValueError(
                    f"{holder} has been submitting to this grid for {WAIT_S / 60:g} minutes: wait for it, or end it"
                ) from holder
            yield

    @property
    def entries(self) -> dict[str, Entry]:
        """By name of the run folder. Raises ValueError, with what to do, for a file that is not whole."""
        if not self._path.exists():
            return {}
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(name): Entry(**entry) for name, entry in content.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self._path} is not whole, or of another version ({error}): cancel what `squeue --me` shows of this "
                "grid, or wait for it, and delete that file"
            ) from error

    def in_queue(self, names: Iterable[str]) -> dict[str, tuple[Entry, Standing]]:
        """Of these run folders, those that a job of this cluster has not ended with. Raises QueueError."""
        entries = self.entries
        noted = {name: entries[name] for name in names if name in entries}
        if not noted:
            return {}
        here = {name: entry for name, entry in noted.items() if entry.cluster in ("", cluster_name())}
        found = standings(entry.job for entry in here.values())
        return {name: (entry, found[entry.job]) for name, entry in here.items() if entry.is_in_queue(found[entry.job])}

    def add(self, entries: dict[str, Entry]) -> None:
        """Note jobs by run folder, in a file that is whole whenever this process ends."""
        content = {name: asdict(entry) for name, entry in (self.entries | entries).items()}
        if not entries:
            return
        beside = self._path.with_suffix(f".{os.getpid()}.part")
        with beside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
