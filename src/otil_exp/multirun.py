"""What the launchers of a grid share: what of Hydra's they refuse, and how the points of a grid are composed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import filter_overrides
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict


def check_start(config: DictConfig) -> None:
    """Exit with a sentence where a grid would be cut into batches, or started anew by every rank of another one.

    Called by setup(), before Hydra's sweeper starts.
    """
    from otil_exp.launch.environment import place_of

    if (place := place_of(os.environ)) is not None:
        sys.exit(
            f"a grid starts the ranks of its cells itself, and this process is one of {place.world_size} ranks that "
            f"{place.starter} started: type `otil-exp -m ...` without it, or one cell without -m"
        )
    if (size := OmegaConf.select(config, "hydra.sweeper.max_batch_size")) is not None:
        sys.exit(
            f"hydra.sweeper.max_batch_size={size}: a grid is checked as a whole, and references run first: leave it "
            "out; on Slurm hydra.launcher.array_parallelism=N bounds the jobs at once, and the local launcher runs one "
            "cell at a time"
        )


def check_folder(folder: Path, setting: str) -> None:
    """Exit with a sentence where a folder that a setting names cannot be written to.

    Called by setup(): Hydra's sweeper writes multirun.yaml before it calls launch().
    """
    from otil_exp.run_folder.whole import make_writable

    try:
        make_writable(folder.absolute(), setting)
    except ValueError as error:
        sys.exit(str(error))


def composed(
    context: HydraContext, config: DictConfig, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
) -> list[DictConfig]:
    """The config of every cell of a grid, Hydra's own part with it."""
    cells = []
    for number, overrides in enumerate(job_overrides, start=initial_job_idx):
        cell = context.config_loader.load_sweep_config(config, list(overrides))
        with open_dict(cell):
            cell.hydra.job.id = cell.hydra.job.num = number
        cells.append(cell)
    return cells


def without_hydra(config: DictConfig) -> DictConfig:
    """The cell's own part of a composed config."""
    own = config.copy()
    with open_dict(own):
        del own["hydra"]
    return own


def names_of(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """What was typed for each cell."""
    return [" ".join(filter_overrides(overrides)) for overrides in job_overrides]
