"""The fold on one GPU: its parts alone, and the memory of whole pictures.

    python -m benchmarks.fold parts FOLDER [--cuts default,every2] [--engines cuda_graph,compiled] [--size 1024]
    python -m benchmarks.fold pictures FOLDER

parts: the outer part (its way down and up) and the inner part of each cut, at batch 1 as with four ranks and the batch
split, so that the slower one is the step; and the whole UNet in a CUDA graph, at batch 2 (one GPU's step) and 1. Each
is a process of its own: milliseconds a call (median of 20), peak memory from loading on, seconds until the first call
was over, compiled cold. All of one engine get ready side by side, as the ranks of a machine do, and are timed one by
one; on a CPU, which has no cores to spare, one is made after the other. `default` stands for the balanced cut, `every2`
for that of preset.every=2; others by their names.
pictures: a short picture of one GPU and of four ranks that share one, and the peak of every rank (times mean nothing).

Each figure is a line of JSON as soon as it is there; FOLDER has all of them, and the table, after each one.
On a CPU: --model shapes --device cpu --size 256 --engines eager,compiled.
Whole pictures on several GPUs are `otil-exp -m experiment=bench/fold` and `experiment=bench/fold_every`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fold.part import Part, run_part
from benchmarks.fold.pictures import peaks
from benchmarks.fold.table import table
from benchmarks.side_by_side import Job, side_by_side
from otil_exp.run_folder.whole import write_text

READY_S, TIMED_S = 240.0, 60.0
"""Bounds on getting ready, of all parts of an engine at once, and on timing one."""


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    found = measured(options) if options.command == "parts" else peaks(options.folder, options.model, options.device)
    failed = 0
    for result in found:
        failed += "failed" in result
        results.append(result)
        print(json.dumps(result), flush=True)
        write_text(options.folder / f"{options.command}.json", json.dumps(results, indent=1))
        if options.command == "parts":
            write_text(options.folder / "parts.md", "\n".join(table(results)) + "\n")
    if options.command == "parts":
        print(*table(results), sep="\n")
    return 1 if failed else 0


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each part of each engine; one that fails costs only itself."""
    for engine in options.engines.split(","):
        cases = [Part(one, cut, engine, 1) for cut in options.cuts.split(",") for one in ("outer", "inner")]
        if engine != "compiled":
            cases = [Part("whole", "-", engine, batch) for batch in (2, 1)] + cases
        setting = {"model": options.model, "device": options.device, "size": options.size}
        jobs = [Job(case.name, options.folder, run_part, case, setting) for case in cases]
        for together in [jobs] if options.device == "cuda" else [[job] for job in jobs]:
            yield from timed_one_by_one(together)


def timed_one_by_one(jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    """Get all ready side by side, then time one after the other."""
    for job in jobs:
        job.files.path("json").unlink(missing_ok=True)
    with side_by_side(jobs, READY_S):
        for job in jobs:
            done, result = job.go(TIMED_S), job.files.path("json")
            if done and result.exists():
                yield json.loads(result.read_text(encoding="utf-8"))
            else:
                when = "getting ready" if job.ready_s is None else "being timed"
                yield {"part": job.name, "failed": f"while {when}, or not in time: {job.last_words}"}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.fold", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("parts", "pictures"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path, help="where the results go")
        command.add_argument("--model", default="sdxl_random", help="one of conf/model, as for otil-exp")
        command.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
        if name == "parts":
            command.add_argument("--size", type=int, default=1024, help="pixels of a side")
            command.add_argument("--engines", default="cuda_graph,compiled")
            command.add_argument("--cuts", default="default,every2")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
