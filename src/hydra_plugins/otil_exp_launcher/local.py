"""hydra/launcher=local: the cells of a grid one after the other on this machine, each distinct one once."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


@dataclass
class LocalLauncherConf:
    """Schema of hydra/launcher=local."""

    _target_: str = "hydra_plugins.otil_exp_launcher.local.LocalLauncher"

    pack: int = 1
    """Most cells that share a start of the ranks and the loaded weights, where model, topology and engine are equal."""


# As Hydra's default too: an `override hydra/launcher` of config.yaml would beat those of the experiment files below it.
for name in ("local", "basic"):
    ConfigStore.instance().store(group="hydra/launcher", name=name, node=LocalLauncherConf, provider="otil_exp")


class LocalLauncher(BasicLauncher):
    """Hydra's basic launcher, with a grid's needs: all cells are checked before the first starts, references go first
    (the others are compared with them), equal cells run once, a failed cell does not stop the others, and a table of
    all of them ends it."""

    def __init__(self, pack: int = 1) -> None:
        super().__init__()
        self.pack = pack

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        check_folder(Path(config.hydra.sweep.dir), "output_dir")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from otil_exp.compose_errors import check_cells
        from otil_exp.grid import check_grid, packed
        from otil_exp.phases import Countdown
        from otil_exp.report.table import summary
        from otil_exp.terminal import console as as_typed

        setup_globals()
        if len(job_overrides) > 1 and "WORLD_SIZE" in os.environ:
            sys.exit("a grid needs fresh processes for every cell: run it with `otil-exp -m ...`, without torchrun")
        if self.pack < 1:
            sys.exit(f"hydra.launcher.pack={self.pack}: use 1 (every cell starts its ranks) or more")
        console = as_typed()
        assert self.hydra_context is not None
        assert self.config is not None
        configs = composed(self.hydra_context, self.config, job_overrides, initial_job_idx)
        check_cells(self.config, configs)
        try:
            members = check_grid([without_hydra(config) for config in configs], names_of(job_overrides))
        except ValueError as error:
            sys.exit(str(error))
        console.print(f"{len(configs)} cells, {len(members)} distinct")
        returns: dict[int, JobReturn] = {}
        failed: list[str] = []
        countdown = Countdown(len(members), sum(not member.cell.folder.finished for member in members))
        for pack in packed(members, self.pack):
            console.print(countdown.begins(len(pack)))
            for member in pack:
                console.print(member.title)
            left = sum(not member.cell.folder.finished for member in pack)
            result, failures = self._run(configs[pack[0].numbers[0]], pack, console)
            countdown.ended(left)
            for member in pack:
                returns |= dict.fromkeys(member.numbers, result)
                if (message := failures.get(str(member.cell.folder.path))) is not None:
                    failed.append(f"#{member.numbers[0]}")
                    console.print(message, style="red")
        console.print(summary([member.cell.folder for member in members]), soft_wrap=False)
        if failed:
            sys.exit(f"{len(failed)} of {len(members)} cells failed: {', '.join(failed)}")
        return [returns[i] for i in range(len(configs))]

    def _run(self, config: DictConfig, pack: list[Any], console: Any) -> tuple[JobReturn, dict[str, str]]:
        """Run a pack as Hydra runs a job; its result, and why cells failed by run folder."""
        from otil_exp.job import Job

        assert self.hydra_context is not None
        failures: dict[str, str] = {}

        def task(_: DictConfig) -> None:
            Job(say=console.print).run([member.cell for member in pack], failures)

        result = run_job(
            hydra_context=self.hydra_context,
            task_function=task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        if result.status is not JobStatus.COMPLETED:
            return result, {str(member.cell.folder.path): str(result._return_value) for member in pack} | failures
        return result, failures


def check_folder(folder: Path, setting: str) -> None:
    """Exit with a sentence where a folder that a setting names cannot be written to.

    Called by setup(): Hydra's sweeper writes multirun.yaml before it calls launch().
    """
    from otil_exp.run_folder.folder import make_writable

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
