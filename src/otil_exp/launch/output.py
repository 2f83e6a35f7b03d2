"""Where a rank's words go: logs/rank<r>.log, and for rank 0 the terminal as well."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TextIO


def open_log(log_dir: Path, rank: int) -> TextIO:
    """Open log_dir/rank<rank>.log for appending: a run that is continued keeps what its first part said."""
    log_dir.mkdir(parents=True, exist_ok=True)
    return (log_dir / f"rank{rank}.log").open("a", buffering=1, encoding="utf-8", errors="backslashreplace")


def redirect_output(log: TextIO) -> None:
    """Send this process's stdout and stderr, C and C++ code's included, to the file.

    elastic's own redirection makes one truncated file a stream, in folders of its own naming.
    """
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(log.fileno(), descriptor)
        stream.reconfigure(line_buffering=True, encoding="utf-8")  # type: ignore[union-attr]


def log_to(log: TextIO | None, rank: int) -> logging.Formatter:
    """Add the file to the root logger's handlers."""
    raise NotImplementedError


def format_of(rank: int) -> logging.Formatter:
    return logging.Formatter(f"[%(asctime)s][rank {rank}][%(name)s][%(levelname)s] %(message)s")


def show_where_it_hung(log: TextIO) -> None:
    """Write every thread's stack to the file when SIGTERM ends this process: that is how a hung rank ends."""
    faulthandler.register(signal.SIGTERM, file=log, chain=True)
