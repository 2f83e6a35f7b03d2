"""Jobs of test_benchmarks.py, in a module that loads no library: a job is there at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.side_by_side import Files


def waits(order: Path, files: Files) -> None:
    print("here")
    files.say_ready()
    files.wait_for_go()
    with order.open("a") as lines:
        lines.write(f"{files.name}\n")


def never_ready(files: Files) -> None:
    time.sleep(100)


def never_done(files: Files) -> None:
    files.say_ready()
    files.wait_for_go()
    time.sleep(100)


def fails(files: Files) -> None:
    sys.exit("no such luck")
