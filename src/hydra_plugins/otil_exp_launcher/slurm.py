"""hydra/launcher=slurm: the cells of a grid as jobs of a Slurm cluster."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, env_override, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from otil_exp.multirun import check_folder, check_start, composed, names_of, without_hydra
from otil_exp.slurm.settings import SlurmSettings, check_settings, job_folder

ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=SlurmSettings, provider="otil_exp")


class SlurmLauncher(Launcher):
    """Checks all cells, submits those that are not done, and waits for them; what they did is in the run folders."""

    def __init__(self, **settings: Any) -> None:
        typed = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(SlurmSettings), settings))
        assert isinstance(typed, SlurmSettings)
        self.settings = typed

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        check_start(config)
        try:
            check_settings(self.settings)
        except ValueError as error:
            sys.exit(str(error))
        self.settings.submitit_folder = job_folder(self.settings.submitit_folder)
        grid = Path(config.hydra.sweep.dir)
        check_folder(grid, "output_dir")
        check_folder(grid / ".submitit", "output_dir")  # the ledger of jobs
        check_folder(Path(self.settings.submitit_folder.partition("%j")[0]), "hydra.launcher.submitit_folder")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from otil_exp.cells.grid import check_grid, old_runs
        from otil_exp.compose_errors import check_cells
        from otil_exp.slurm.dry_run import describe
        from otil_exp.slurm.resources import device_for, resources_of
        from otil_exp.slurm.session import run_grid
        from otil_exp.terminal import console as as_typed

        setup_globals()
        cells = composed(self.hydra_context, self.config, job_overrides, initial_job_idx)
        check_cells(self.config, cells)
        try:
            members = check_grid(
                [without_hydra(cell) for cell in cells],
                names_of(job_overrides),
                lambda kind, ranks: device_for(kind, self.settings.partition),
                partial(resources_of, settings=self.settings),
            )
        except ValueError as error:
            sys.exit(str(error))
        console = as_typed()
        console.print(f"{len(job_overrides)} cells, {len(members)} distinct", *old_runs(members), sep="\n")
        if self.settings.dry_run:
            describe(members, self.settings, Path(members[0].cell.folder.path).parents[1], console)
            return []
        if self.config.hydra.callbacks:
            console.print("hydra.callbacks: those of a grid are called here; those of a job are not called on Slurm")
        with env_override(self.config.hydra.job.env_set):  # sbatch hands its own environment to the jobs
            problem = run_grid(members, self.settings, Path(str(self.config.hydra.sweep.dir)), console)
        if problem is not None:
            sys.exit(problem)
        return []
