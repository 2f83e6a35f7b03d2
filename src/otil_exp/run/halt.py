"""A halt of a run between its ready pipeline and its first picture: runs get ready side by side, then start in turn.

    halt = FileHalt(ready=folder / "otil.ready", go=folder / "otil.go", bound_s=600)
    Job(say=print, halt=halt).run([cell], failures)   # in a thread or a process of its own, one for each run

Getting ready is loading, capturing and compiling: minutes, mostly of the host, in which several runs share the GPUs.
Once the `ready` file is there, `halt.let_go()` starts the run, and what is timed has the GPUs to itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from otil_exp.run_folder.whole import write_text

if TYPE_CHECKING:  # imports torch
    from otil_exp.topology import RankContext

POLL_S = 0.1


class Halt(Protocol):
    """What every rank of a run calls once, when the pipelines of all ranks are ready and no picture has begun.

    It goes to other processes, so it must be picklable. What it raises fails the run.
    """

    def __call__(self, ranks: RankContext) -> None: ...


@dataclass(frozen=True)
class FileHalt:
    """A halt that speaks through two files of a folder that all ranks see."""

    ready: Path
    """Written by rank 0 when all ranks are ready: when that was, seconds since the epoch."""

    go: Path
    """The ranks go on when it is there."""

    bound_s: float
    """Seconds after which ranks that were not let go give up."""

    def __call__(self, ranks: RankContext) -> None:
        """Say that the run is ready, and wait. Raises TimeoutError after `bound_s`."""
        if ranks.is_main:
            write_text(self.ready, f"{time.time()}\n")
        deadline = time.monotonic() + self.bound_s
        while not self.go.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"ready, but not let go within {self.bound_s:g} s: {self.go} was not made")
            time.sleep(POLL_S)

    def let_go(self) -> None:
        """Let the run go on."""
        self.go.parent.mkdir(parents=True, exist_ok=True)
        self.go.touch()

    def clear(self) -> None:
        """Forget an earlier run of the same files."""
        self.ready.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)

    @property
    def ready_at(self) -> float | None:
        """When the run was ready, seconds since the epoch; None before that."""
        return float(self.ready.read_text(encoding="utf-8")) if self.ready.exists() else None
