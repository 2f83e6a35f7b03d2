"""Where a rank's words go: logs/rank<r>.log of the run it is at, and for rank 0 the terminal as well."""

from __future__ import annotations

import logging
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TextIO


class RankLog:
    """The log of this rank: one stream, whose file changes as the rank goes from one run to the next."""

    def __init__(self, log_dir: Path, rank: int) -> None:
        self._rank = rank
        self._redirected = False
        self.stream: TextIO = _open(log_dir, rank)

    def continue_in(self, log_dir: Path, title: str) -> None:
        """Go on in the folder of the run that begins: whoever holds the stream, or stdout, writes there from now on."""
        self.stream.flush()
        with _open(log_dir, self._rank) as file:
            os.dup2(file.fileno(), self.stream.fileno())
        if self._redirected:
            self.redirect_output()
        # One write: of a rank that is killed this may be all there is to read.
        self.stream.write(f"[{datetime.now():%F %T}][rank {self._rank}] begins {title}\n")

    def redirect_output(self) -> None:
        """Send this process's stdout and stderr, those of C and C++ code included, to the log.

        elastic would make a file of each stream, emptied at every start and in folders of its own naming; and what it
        also shows on the terminal (tee) goes through a file, so that a progress bar would no longer see a terminal.
        """
        self._redirected = True
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(self.stream.fileno(), descriptor)
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


_current: RankLog | None = None


def open_log(log_dir: Path, rank: int) -> RankLog:
    """Begin this process's log."""
    global _current
    _current = RankLog(log_dir, rank)
    return _current


def continue_log(log_dir: Path, title: str) -> None:
    """Let this process's log, if it has one, go on in the folder of the run that begins.

    title: the run in a line of its log.
    """
    if _current is not None:
        _current.continue_in(log_dir, title)


def log_to(stream: TextIO, rank: int, level: int = logging.NOTSET) -> None:
    """Copy what this process logs, from a level on, to the stream, each line with its rank."""
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(f"[%(asctime)s][rank {rank}][%(name)s][%(levelname)s] %(message)s"))
    logging.getLogger().addHandler(handler)


def _open(log_dir: Path, rank: int) -> TextIO:
    """Open log_dir/rank<rank>.log for appending: a run that is continued keeps what its first part said."""
    log_dir.mkdir(parents=True, exist_ok=True)
    return (log_dir / f"rank{rank}.log").open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
