"""Run the ablations on ranks that start once instead of once a cell.

    python benchmarks/ablation OUT [--part 0/3] [--minutes 60] [prompts.limit=1 ...]

The run folders in OUT/ablation are those of `otil-exp -m experiment=ablation/NAME output_dir=OUT` for every NAME; a
finished one is skipped. Pictures only: score them with `otil-exp-evaluate OUT/ablation`. --part i/n takes every n-th
cell, for several of these side by side. The reference runs in a process of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cells import distinct
from perform import perform_all

from otil_exp.launch import launch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="root of the run folders")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--minutes", type=float, default=60.0, help="no cell starts later than this")
    parser.add_argument("overrides", nargs="*", help="for all cells alike")
    options = parser.parse_intermixed_args()
    deadline = time.time() + 60 * options.minutes
    index, count = map(int, options.part.split("/"))
    cells = [point.cell for point in distinct(f"output_dir={options.out}", "metrics=none", *options.overrides)]
    for world_size in (1, 4):
        here = [one for one in cells if one.effective.topology.world_size == world_size]
        jobs = [
            (one.effective, one.composed, one.prompts, str(one.folder.path))
            for one in here[index::count]
            if not one.folder.finished
        ]
        if jobs:
            logs = Path(options.out) / "logs" / f"{index}of{count}"
            launch(perform_all, world_size, jobs, deadline, log_dir=logs, threads=1 if world_size > 1 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
