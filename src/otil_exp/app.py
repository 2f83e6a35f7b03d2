"""The Hydra app: compose -> validate -> launch; nothing else."""

from __future__ import annotations

import os
import sys
import time

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from otil_exp.compose_errors import composed as all_is_composed
from otil_exp.compose_errors import one_sentence
from otil_exp.conf_tree import conf_folder
from otil_exp.schema import register_schema
from otil_exp.terminal import for_a_reader

RANK_0_SPEAKS_S = 10.0
"""Seconds that rank 0 gets to say what all ranks found wrong: srun and torchrun end it when another one leaves."""


class CellError(Exception):
    """Why a cell did not run, or failed: a message for the user that needs no traceback of this program."""


def run_cell(composed: DictConfig) -> str:
    """Run one composed cell, unless it is done already; returns its run folder.

    Raises CellError for a mistake or a failed rank; outside a grid that message is all the user sees, with exit code 1.
    """
    all_is_composed()
    # Late, so that --help, --cfg and completion do not wait for torch.
    from otil_exp.cells.prepare import prepare
    from otil_exp.job import Job
    from otil_exp.launch.environment import WorldSizeError, place_of
    from otil_exp.report.table import summary
    from otil_exp.run_folder.old_form import old_form_sentence
    from otil_exp.terminal import console as as_typed

    place, in_a_grid = place_of(os.environ), HydraConfig.get().mode is RunMode.MULTIRUN
    if not in_a_grid:
        _check_launcher(HydraConfig.get().launcher)
    console = as_typed(quiet=place is not None and place.rank != 0)
    job = Job(say=console.print, hosted=place is not None, main=place is None or place.rank == 0)
    failures: dict[str, str] = {}
    try:
        try:
            cell = prepare(composed)
            if not in_a_grid and (old := old_form_sentence(cell.folder.path.parent)) is not None:
                console.print(old)
            job.run([cell], failures)
        except WorldSizeError as error:
            if not job.main:
                time.sleep(RANK_0_SPEAKS_S)
                sys.exit(1)
            raise CellError(str(error)) from error
        except (ValueError, FileNotFoundError) as error:
            raise CellError(str(error)) from error
        if failures:
            raise CellError(failures[str(cell.folder.path)])
    except CellError as error:
        if in_a_grid:
            raise
        sys.exit(str(error))
    if not in_a_grid:
        console.print(summary([cell.folder]), soft_wrap=False)
    return str(cell.folder.path)


def _check_launcher(launcher: DictConfig) -> None:
    """Exit with a sentence where a launcher is typed for a cell that runs here: Hydra calls launchers with -m alone."""
    if launcher._target_.endswith(".SlurmLauncher"):
        chosen = HydraConfig.get().runtime.choices["hydra/launcher"]
        sys.exit(
            f"hydra/launcher={chosen} submits with -m only, without it this cell would run on this machine: type "
            f"`otil-exp -m hydra/launcher={chosen} ...`, for one cell too, or leave hydra/launcher out"
        )


def main() -> None:
    """Entry point of `otil-exp`."""
    register_schema()
    try:
        with for_a_reader(), one_sentence():
            hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(run_cell)()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on with what is missing")


if __name__ == "__main__":
    main()
