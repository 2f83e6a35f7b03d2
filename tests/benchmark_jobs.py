"""Jobs of test_benchmarks.py, in a module that loads no library: a job is there at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.side_by_side import Files

ALONE: Any = SimpleNamespace(is_main=True)
"""Stands for the one rank of a job."""


def waits(order: Path, files: Files) -> None:
    print("here")
    files.halt(ALONE)
    with order.open("a") as lines:
        lines.write(f"{files.name}\n")


def never_ready(files: Files) -> None:
    time.sleep(100)


def never_done(files: Files) -> None:
    files.halt(ALONE)
    time.sleep(100)


def fails(files: Files) -> None:
    sys.exit("no such luck")
