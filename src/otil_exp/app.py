"""The Hydra app: compose -> validate -> launch; nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from otil_exp.config import register_schema

if TYPE_CHECKING:
    from otil_exp.cell import Cell


class CellError(Exception):
    """Why a cell did not run, or failed: a message for the user that needs no traceback of this program."""


def conf_folder() -> Path:
    """The Hydra tree: inside an installed wheel, at the top of a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.exists() else Path(__file__).parents[2] / "conf"


def run_cell(composed: DictConfig) -> str:
    """Run one composed cell, unless it is done already; returns its run folder.

    Raises CellError for a mistake or a failed rank; outside a grid that message is all the user sees, with exit code 1.
    """
    # Late, so that --help, --cfg and completion do not wait for torch.
    from rich.console import Console

    from otil_exp.cell import prepare
    from otil_exp.launch.environment import place_of
    from otil_exp.report.table import summary

    place, in_a_grid = place_of(os.environ), HydraConfig.get().mode is RunMode.MULTIRUN
    console = Console(quiet=place is not None and place.rank != 0)
    try:
        try:
            cell = prepare(composed)
            _run_or_skip(cell, console.print, hosted=place is not None, main=place is None or place.rank == 0)
        except (ValueError, FileNotFoundError) as error:
            raise CellError(str(error)) from error
    except CellError as error:
        if in_a_grid:
            raise
        sys.exit(str(error))
    if not in_a_grid:
        console.print(summary([cell.folder]))
    return str(cell.folder.path)


def _run_or_skip(cell: Cell, say: Callable[[str], None], hosted: bool, main: bool) -> None:
    """Launch a cell that is not finished; give a finished one the scores that are asked for now.

    hosted: others started this process as a rank; main: it is the one that writes.
    """
    from otil_exp.config import Mode
    from otil_exp.run.scores import Share, is_scored, score_run

    with cell.folder.locked() if main else nullcontext():
        if not cell.folder.finished:
            say(f"{cell.label}: {cell.folder.path}")
            _launch(cell, hosted)
            return
        say(f"{cell.label}: done already, skipped ({cell.folder.path})")
        metrics = cell.effective.metrics
        if main and cell.effective.mode is Mode.generate and not is_scored(cell.folder, metrics):
            score_run(cell.folder, metrics, Share.all())


def _launch(cell: Cell, hosted: bool) -> None:
    """Start the ranks and wait for them; note in the record how they ended if they could not.

    Raises CellError naming the rank that failed.
    """
    from otil_exp.launch import RankFailure, launch
    from otil_exp.run.execution import execute
    from otil_exp.run.failure import note_failure, note_interruption

    arguments = (cell.effective, cell.composed, cell.prompts, str(cell.folder.path), hosted)
    world_size, threads = cell.effective.topology.world_size, cell.effective.device.threads
    try:
        launch(execute, world_size, *arguments, log_dir=cell.folder.logs, threads=threads)
    except RankFailure as failure:
        note_failure(cell.folder, failure.rank, failure.message, failure.traceback)
        raise CellError(str(failure)) from failure
    except (KeyboardInterrupt, SystemExit):
        if not hosted:
            note_interruption(cell.folder)
        raise


def main() -> None:
    """Entry point of `otil-exp`."""
    register_schema()
    try:
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(run_cell)()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on with what is missing")


if __name__ == "__main__":
    main()
