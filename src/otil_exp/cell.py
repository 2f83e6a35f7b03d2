"""One point of a grid, from composed config to run folder: everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from otil_exp.choices import DeviceKind, Mode
from otil_exp.compile_cache import check_compile_cache
from otil_exp.compose_errors import check_composed
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.effective import effective
from otil_exp.metrics.picture import check_weights
from otil_exp.model_files import check_model
from otil_exp.prompts import Prompt, load_prompts
from otil_exp.run.scores import is_scored
from otil_exp.run_folder.folder import RunFolder, make_writable
from otil_exp.run_folder.signature import signature
from otil_exp.topology import resolve_device
from otil_exp.validate import topology_of, validate


@dataclass(frozen=True)
class Cell:
    """A validated cell, ready to launch."""

    composed: dict[str, Any]
    """What the user composed, resolved and plain: the run folder's config.yaml."""

    effective: ExperimentConfig
    """What is run: settings the method ignores normalised away."""

    prompts: list[Prompt]
    folder: RunFolder

    @property
    def label(self) -> str:
        """The cell in a line of output."""
        topology = self.effective.topology
        split = "" if topology.world_size == 1 else " split" if topology.split_batch else " nosplit"
        return f"{self.effective.preset.name} on {topology.world_size} rank(s){split}"

    @property
    def settled(self) -> bool:
        """Whether it is finished, and has the scores that are asked for now."""
        if not self.folder.finished:
            return False
        return self.effective.mode is not Mode.generate or is_scored(self.folder, self.effective.metrics)


def prepare(composed: DictConfig, device_for: Callable[[str, int], str] = resolve_device) -> Cell:
    """Check a composed config and say where it runs, in a folder that is made if need be.

    device_for: settles device= for a number of ranks, as `resolve_device` does for this machine.
    Raises ValueError, with what to type, for anything that contradicts itself or this machine, FileNotFoundError for
    weights of the model or of metrics that are not here.
    """
    check_composed(composed)
    typed = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ExperimentConfig), composed))
    assert isinstance(typed, ExperimentConfig)
    kind = device_for(typed.device.kind.name, topology_of(typed).world_size)
    config = replace(typed, device=replace(typed.device, kind=DeviceKind[kind]))
    validate(config)
    check_weights(config.metrics)
    check_model(config.model)
    check_compile_cache(config)
    prompts = load_prompts(config.prompts, config.seed)
    what = effective(config)
    grid = Path(config.output_dir).expanduser().absolute() / config.name
    make_writable(grid, "output_dir")
    folder = RunFolder(grid / signature(what, prompts), planned=_planned(config, what))
    return Cell(composed=to_plain(config), effective=what, prompts=prompts, folder=folder)


def _planned(config: ExperimentConfig, what: ExperimentConfig) -> dict[str, Any]:
    """What a run folder will say of a cell, for tables in which it never began."""
    topology = {"world_size": what.topology.world_size, "split_batch": what.topology.split_batch}
    effective = {"k": int(what.k.budget) or None, "refresh_period": what.refresh.period}
    return {"method": what.preset.name, "topology": topology, "effective": effective, "config": to_plain(config)}
