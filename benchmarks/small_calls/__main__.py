"""What small calls of a rank's step take, beside kernels that might replace them.

    python -m benchmarks.small_calls FOLDER

Candidates are compiled by several processes at a time and measured by one. A candidate that fails, hangs or takes its
process down costs only itself, and the whole ends within BUDGET_S. Writes FOLDER/results.json (every config) and
FOLDER/table.md (the fastest of each way). Without a GPU shapes are tiny and Triton interprets the kernels: their values
are checked, and times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.small_calls.case import ON_CPU
from benchmarks.small_calls.table import write
from benchmarks.small_calls.worker import lines_of

BUDGET_S = float(os.environ.get("BUDGET_S", 600 if ON_CPU else 95))
"""Seconds of everything."""

COMPILE_S = 45.0
"""Bound on compiling together; what is missing then is compiled where it is measured."""

QUIET_S = 25.0
"""After which a candidate that has said nothing is given up."""

COMPILERS = 0 if ON_CPU else min(8, (os.cpu_count() or 1) // 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lines = folder / "lines.jsonl"
    lines.unlink(missing_ok=True)
    began = time.monotonic()
    compile_together(folder)
    print(f"compiled: {time.monotonic() - began:.0f} s", flush=True)
    while (left := began + BUDGET_S - time.monotonic()) > 0:
        before = len(lines_of(lines))
        if measure(folder, lines, left) or len(lines_of(lines)) == before:
            break
    print(write(folder, lines_of(lines)), end="")
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)
    return 0


def compile_together(folder: Path) -> None:
    """Fill the caches of Triton and Inductor."""
    deadline = time.monotonic() + COMPILE_S
    with (folder / "compile.log").open("w") as log:
        parts = [_worker(folder, log, part, COMPILERS) for part in range(COMPILERS)]
        for process in parts:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(folder: Path, lines: Path, left: float) -> bool:
    """Whether a process measured all that nobody had begun; it ends when it is quiet for too long."""
    deadline, heard, size = time.monotonic() + left, time.monotonic(), -1
    with (folder / "measure.log").open("a") as log:
        process = _worker(folder, log)
        while process.poll() is None:
            time.sleep(0.1)
            now, grown = time.monotonic(), lines.stat().st_size if lines.exists() else 0
            heard, size = (now, grown) if grown != size else (heard, size)
            if now > deadline or (now > heard + QUIET_S and not ON_CPU):
                process.kill()
                process.wait()
    return process.returncode == 0


def _worker(folder: Path, log: object, *part: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.small_calls.worker", str(folder), *map(str, part)]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # type: ignore[call-overload,no-any-return]


if __name__ == "__main__":
    sys.exit(main())
