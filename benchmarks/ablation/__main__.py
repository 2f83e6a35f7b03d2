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
from typing import Any

from cells import distinct
from torch import distributed as dist

from otil_exp.launch import launch
from otil_exp.run.execution import perform
from otil_exp.run.folder import RunFolder
from otil_exp.topology import Topology, join, leave


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


def perform_all(jobs: list[tuple[Any, ...]], deadline: float) -> None:
    """Perform cells of one topology on this rank, one after the other; rank 0's clock says when to stop."""
    first = jobs[0][0]
    ranks = join(
        Topology(world_size=first.topology.world_size, split_batch=first.topology.split_batch),
        first.device.kind.name,
        first.launch.collective_timeout_s,
    )
    for effective, composed, prompts, path in jobs:
        start = time.time()
        if not _agreed(start < deadline, ranks.topology.world_size):
            break
        perform(ranks, effective, composed, prompts, RunFolder(Path(path)))
        if ranks.is_main:
            print(f"{effective.preset.name} {Path(path).name}: {time.time() - start:.1f} s", flush=True)
    leave()


def _agreed(go_on: bool, world_size: int) -> bool:
    """Rank 0's word for all ranks."""
    if world_size == 1:
        return go_on
    said = [go_on]
    dist.broadcast_object_list(said, src=0)
    return said[0]


if __name__ == "__main__":
    sys.exit(main())
