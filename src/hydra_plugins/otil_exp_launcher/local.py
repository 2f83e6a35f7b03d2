"""hydra/launcher=local: the cells of a grid one after the other on this machine, each distinct one once."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from omegaconf import DictConfig, open_dict


@dataclass
class LocalLauncherConf:
    """Schema of hydra/launcher=local."""

    _target_: str = "hydra_plugins.otil_exp_launcher.local.LocalLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalLauncherConf, provider="otil_exp")


class LocalLauncher(BasicLauncher):
    """Hydra's basic launcher, with a grid's needs: all cells are checked before the first starts, references go first
    (the others are compared with them), equal cells run once, a failed cell does not stop the others, and a table of
    all of them ends it."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from rich.console import Console

        from otil_exp.cell import Cell
        from otil_exp.report.table import summary

        setup_globals()
        console = Console()
        configs = [self._compose(overrides, initial_job_idx + i) for i, overrides in enumerate(job_overrides)]
        cells = self._prepare(configs, job_overrides)

        distinct: dict[str, list[int]] = {}
        for i, cell in enumerate(cells):
            distinct.setdefault(str(cell.folder.path), []).append(i)
        order = sorted(distinct.values(), key=lambda same: cells[same[0]].effective.preset.name != "reference")
        console.print(f"{len(cells)} cells, {len(order)} distinct")
        returns: dict[int, JobReturn] = {}
        for same in order:
            self._announce(console, job_overrides, same)
            result = self._run(configs[same[0]])
            if result.status is not JobStatus.COMPLETED:
                console.print(str(result._return_value), style="red", markup=False)
            returns |= dict.fromkeys(same, result)
        shown: list[Cell] = [cells[same[0]] for same in order]
        console.print(summary([cell.folder for cell in shown]))
        failed = [same[0] for same in order if returns[same[0]].status is not JobStatus.COMPLETED]
        if failed:
            sys.exit(f"{len(failed)} of {len(order)} cells failed: {', '.join(f'#{i}' for i in failed)}")
        return [returns[i] for i in range(len(cells))]

    def _compose(self, overrides: Sequence[str], index: int) -> DictConfig:
        assert self.hydra_context is not None
        assert self.config is not None
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = index
        return config

    def _prepare(self, configs: list[DictConfig], job_overrides: Sequence[Sequence[str]]) -> list:
        """Check every cell; all mistakes of a grid in one message, before anything starts."""
        from otil_exp.cell import prepare

        if len(configs) > 1 and "WORLD_SIZE" in os.environ:
            sys.exit("a grid needs fresh processes for every cell: run it with `otil-exp -m ...`, without torchrun")
        cells, mistakes = [], []
        for config, overrides in zip(configs, job_overrides, strict=True):
            try:
                composed = config.copy()
                with open_dict(composed):
                    del composed["hydra"]
                cells.append(prepare(composed))
            except (ValueError, FileNotFoundError) as error:
                mistakes.append(f"{' '.join(filter_overrides(overrides))}: {error}")
        if mistakes:
            sys.exit("nothing was started:\n" + "\n".join(mistakes))
        return cells

    def _run(self, config: DictConfig) -> JobReturn:
        assert self.hydra_context is not None
        assert self.task_function is not None
        return run_job(
            hydra_context=self.hydra_context,
            task_function=self.task_function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )

    @staticmethod
    def _announce(console: object, job_overrides: Sequence[Sequence[str]], same: list[int]) -> None:
        first, *others = (f"#{i} {' '.join(filter_overrides(job_overrides[i]))}" for i in same)
        also = f" (the same run: {'; '.join(others)})" if others else ""
        console.print(f"{first}{also}", markup=False, highlight=False)  # type: ignore[attr-defined]
