"""Where a rank's words go: logs/rank<r>.log, and for rank 0 the terminal as well."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TextIO


def open_log(log_dir: Path, rank: int) -> TextIO:
    """Open log_dir/rank<rank>.log for appending: a run that is continued keeps what its first part said."""
    log_dir.mkdir(parents=True, exist_ok=True)
    return (log_dir / f"rank{rank}.log").open("a", buffering=1, encoding="utf-8", errors="backslashreplace")


def redirect_output(log: TextIO) -> None:
    """Send this process's stdout and stderr, those of C and C++ code included, to the file.

    elastic would make a file of each stream, emptied at every start and in folders of its own naming; and what it also
    shows on the terminal (tee) goes through a file, so that a progress bar would no longer see a terminal.
    """
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(log.fileno(), descriptor)
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def log_to(stream: TextIO, rank: int, level: int = logging.NOTSET) -> None:
    """Copy what this process logs, from a level on, to the stream, each line with its rank."""
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(f"[%(asctime)s][rank {rank}][%(name)s][%(levelname)s] %(message)s"))
    logging.getLogger().addHandler(handler)
