"""One step of one rank on one GPU, upstream's way and ours side by side: milliseconds, memory, host work.

    python -m benchmarks.one_gpu_speed FOLDER [NAME ...]        # cases by name; default all
    python -m benchmarks.one_gpu_speed --list

Other ranks are played by torch's fake process group (what it gathers is the rank's own), so that a step is this rank's
compute alone: what NCCL takes is not in it. Every case is a process of its own. They get ready side by side, those that
compile first where they are many, and then each is timed alone, in the order of the names. Prints a Markdown table;
FOLDER/results.json is written after each case, beside the logs, and keeps the cases measured there before.
COMPILE_TIMEOUT_S in the environment bounds how long cases get ready.
Without a GPU the model is shapes at 256 x 256, upstream's layers are called, and cases compile one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.one_gpu_speed.case_job import CaseJob
from benchmarks.one_gpu_speed.cases import CASES, ON_CPU, Case
from benchmarks.one_gpu_speed.outputs import compare_outputs
from benchmarks.one_gpu_speed.table import table
from benchmarks.side_by_side import side_by_side
from otil_exp.run_folder.whole import write_text

READY_S = float(os.environ.get("COMPILE_TIMEOUT_S", 900))
"""Bound on getting a batch of cases ready."""

TIMED_S = 180.0
"""Bound on timing a case."""

AT_ONCE = 12
"""Cases that get ready side by side, whatever their engine: each has a core, and a UNet in the GPU's memory."""


def main() -> int:
    options = _options()
    if options.list:
        print(*(case.name for case in CASES), sep="\n")
        return 0
    if unknown := set(options.names) - {case.name for case in CASES}:
        sys.exit(f"no case is called {', '.join(sorted(unknown))}; --list names them")
    by_name = {case.name: case for case in CASES}
    cases = [by_name[name] for name in options.names or by_name]
    results = _others(cases, options.folder)
    measured_before = len(results)
    for batch in batches(cases):
        for result in timed_together(batch, options.folder):
            results.append(result)
            print(json.dumps(result), flush=True)
            compare_outputs(results, options.folder)
            _keep(results, options.folder)
    print(*table(results), sep="\n")
    return 1 if len(results) < measured_before + len(cases) else 0


def batches(cases: Sequence[Case]) -> list[list[Case]]:
    """Which cases get ready side by side: on a GPU all, or all that compile; a CPU has no cores to spare."""
    if not ON_CPU and len(cases) <= AT_ONCE:
        return [list(cases)]
    compiled = [case for case in cases if case.engine == "compiled"]
    others = [case for case in cases if case.engine != "compiled"]
    together = [[case] for case in compiled] if ON_CPU else [compiled]
    return [batch for batch in (*together, others) if batch]


def timed_together(cases: Sequence[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Get all cases ready side by side, then time one after the other; one that fails costs only itself."""
    start = time.monotonic()
    jobs = [CaseJob(case, folder) for case in cases]
    with side_by_side(jobs, READY_S):
        missing = ", ".join(job.name for job in jobs if job.ready_s is None) or "none"
        print(f"ready after {time.monotonic() - start:.0f} s; not ready: {missing}", flush=True)
        for job in jobs:
            done = job.go(TIMED_S)
            if job.result.exists():  # also where what came after it failed
                yield json.loads(job.result.read_text(encoding="utf-8"))
            if not done:
                print(f"{job.name}: failed\n{job.last_words}", flush=True)


def _others(cases: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """What the folder has of cases that are not measured now."""
    path = folder / "results.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [result for result in before if result["case"] not in {case.name for case in cases}]


def _keep(results: list[dict[str, Any]], folder: Path) -> None:
    write_text(folder / "results.json", json.dumps(results, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.one_gpu_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="of the results")
    parser.add_argument("names", nargs="*", metavar="name", help="cases; default all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    options = parser.parse_args()
    if options.folder is None and not options.list:
        parser.error("FOLDER is missing: where the results go")
    return options


if __name__ == "__main__":
    sys.exit(main())
