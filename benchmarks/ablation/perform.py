"""What a rank of the ablations does: one cell after the other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import distributed as dist

from otil_exp.run.execution import perform
from otil_exp.run.folder import RunFolder
from otil_exp.topology import Topology, join, leave


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
