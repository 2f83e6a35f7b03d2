"""The Hydra app: compose -> validate -> launch; nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from otil_exp.config import register_schema


def conf_folder() -> Path:
    """The Hydra tree: inside an installed wheel, at the top of a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.exists() else Path(__file__).parents[2] / "conf"


def run_cell(composed: DictConfig) -> str:
    """Run one composed cell, unless it is done already; returns its run folder.

    The user's mistakes and failed ranks end as one readable message, not as a traceback of this program.
    """
    # Late, so that --help, --cfg and completion do not wait for torch.
    from rich.console import Console

    from otil_exp.cell import prepare
    from otil_exp.launch import RankFailure, launch
    from otil_exp.launch.environment import place_of
    from otil_exp.report.table import summary
    from otil_exp.run.execution import execute
    from otil_exp.run.failure import note_failure

    place = place_of(os.environ)
    console = Console(quiet=place is not None and place.rank != 0)
    try:
        cell = prepare(composed)
    except (ValueError, FileNotFoundError) as error:
        raise CompactHydraException(str(error)) from error
    if cell.folder.finished:
        console.print(f"{cell.label}: done already, skipped ({cell.folder.path})")
        return str(cell.folder.path)
    console.print(f"{cell.label}: {cell.folder.path}")
    try:
        launch(
            execute,
            cell.effective.topology.world_size,
            cell.effective,
            cell.composed,
            cell.prompts,
            str(cell.folder.path),
            log_dir=cell.folder.logs,
            threads=cell.effective.device.threads,
        )
    except RankFailure as failure:
        note_failure(cell.folder, failure.rank, failure.message, failure.traceback)
        raise CompactHydraException(str(failure)) from failure
    if HydraConfig.get().mode is not RunMode.MULTIRUN:
        console.print(summary([cell.folder]))
    return str(cell.folder.path)


def main() -> None:
    """Entry point of `otil-exp`."""
    register_schema()
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(run_cell)()


if __name__ == "__main__":
    main()
