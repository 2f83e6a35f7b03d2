"""One process a rank: started here, by torchrun, or by a scheduler.

    result = launch(run_experiment, 4, config, log_dir=folder / "logs")

Nothing here imports torch before it must: each rank pays for its imports, four ranks on two cores pay twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from otil_exp.launch.environment import place_of
from otil_exp.launch.failure import RankFailure
from otil_exp.launch.narrow_link import NarrowLink

if TYPE_CHECKING:  # imports torch
    from otil_exp.launch.step import SlurmStep

__all__ = ["RankFailure", "launch"]

T = TypeVar("T")


def launch(
    function: Callable[..., T],
    world_size: int,
    *args: object,
    log_dir: Path | None = None,
    threads: int | None = None,
    step: SlurmStep | None = None,
    link: NarrowLink | None = None,
) -> T | None:
    """Call `function(*args)` once on every rank; return what rank 0 returned (None on the other ranks).

    Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; joining the process
    group is the function's business (`otil_exp.topology.join`). The function must be importable, its arguments and what
    rank 0 returns picklable.

    - Normally the ranks, a single one too, are fresh processes of this machine (`otil_exp.launch.local`).
    - Under torchrun, or in a step of several tasks that srun or submitit started, this process is one of the ranks
      already: the function runs here, and once only.

    log_dir: every rank's logging and traceback goes to log_dir/rank<r>.log; of the ranks started here all but rank 0
        write their stdout and stderr there too. None leaves the terminal to all.
    threads: CPU threads a rank; None shares the cores out, unless OMP_NUM_THREADS is set.
    step: the ranks become tasks of a step of the Slurm allocation that this process is in.
    link: over which the ranks talk, for ranks that are started here; None: as the machine has it.

    Raises RankFailure when a rank started here fails; ValueError when others started a different number of ranks;
    RuntimeError when this process has hosted a run before; KeyboardInterrupt and SystemExit(128 + signal) when this
    process is told to stop, after the ranks have ended.
    """
    place = place_of(os.environ)
    if link is not None and (step is not None or place is not None):
        raise ValueError(
            f"device.link_mbit={link.mbit:g} limits ranks that otil-exp starts itself, and "
            f"{place.starter if place else 'Slurm'} starts these: use device.link_mbit=0"
        )
    if step is not None:
        from otil_exp.launch.step import start_step  # imports torch

        return start_step(function, world_size, *args, log_dir=log_dir, threads=threads, step=step)
    if place is None:
        from otil_exp.launch.local import start_ranks  # imports torch

        return start_ranks(function, world_size, *args, log_dir=log_dir, threads=threads, link=link)
    from otil_exp.launch.hosted import run_here  # imports torch

    return run_here(place, function, world_size, *args, log_dir=log_dir, threads=threads)
