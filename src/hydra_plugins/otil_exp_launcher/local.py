"""hydra/launcher=local: the cells of a grid one after the other on this machine, each distinct one once."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from otil_exp.multirun import check_folder, check_start, composed, names_of, without_hydra


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
        check_start(config)
        check_folder(Path(config.hydra.sweep.dir), "output_dir")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from otil_exp.cells.grid import check_grid, old_runs, packed
        from otil_exp.compose_errors import check_cells
        from otil_exp.job import Job
        from otil_exp.phases import Countdown
        from otil_exp.report.table import summary
        from otil_exp.run.scores import settled
        from otil_exp.terminal import console as as_typed

        setup_globals()
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
        console.print(f"{len(configs)} cells, {len(members)} distinct", *old_runs(members), sep="\n")
        job = Job(say=console.print)
        returns: dict[int, JobReturn] = {}
        failed: list[str] = []
        countdown = Countdown(len(members), sum(not settled(member.cell) for member in members))
        for pack in packed(members, self.pack):
            console.print(countdown.begins(len(pack)))
            for member in pack:
                console.print(member.title)
            left = sum(not settled(member.cell) for member in pack)
            result, failures = self._run(configs[pack[0].numbers[0]], pack, job)
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

    def _run(self, config: DictConfig, pack: list[Any], job: Any) -> tuple[JobReturn, dict[str, str]]:
        """Run a pack as Hydra runs a job; its result, and why cells failed by run folder."""
        assert self.hydra_context is not None
        failures: dict[str, str] = {}

        def task(_: DictConfig) -> None:
            job.run([member.cell for member in pack], failures)

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
