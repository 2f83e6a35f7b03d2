"""One point of a grid, from composed config to run folder: everything that can be refused is refused here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from otil_exp.cells.normal_form import effective
from otil_exp.cells.rules import validate
from otil_exp.choices import DeviceKind, Mode
from otil_exp.compile_cache import check_compile_cache
from otil_exp.compose_errors import check_composed
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.fp8_gpus import check_machine
from otil_exp.methods.geometry import is_reference, topology_of
from otil_exp.metrics.checks import check_ground_truth, check_scorable, check_weights
from otil_exp.models.architecture import check_architecture
from otil_exp.models.files import check_model
from otil_exp.prompts import load_prompts
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.signature import signature
from otil_exp.run_folder.whole import make_writable
from otil_exp.topology import resolve_device


def prepare(composed: DictConfig, device_for: Callable[[str, int], str] = resolve_device) -> Cell:
    """Check a composed config and say where it runs, in a folder that is made if need be.

    device_for: settles device= for a number of ranks, as `resolve_device` does for this machine.
    Raises ValueError, with what to type, for anything that contradicts itself or this machine, FileNotFoundError for
    weights of the model or of metrics that are not here.
    """
    check_composed(composed)
    typed = OmegaConf.to_object(OmegaConf.merge(_schema(), composed))
    assert isinstance(typed, ExperimentConfig)
    kind = device_for(typed.device.kind.name, topology_of(typed).world_size)
    config = replace(typed, device=replace(typed.device, kind=DeviceKind[kind]))
    validate(config)
    check_weights(config.metrics)
    check_ground_truth(config.metrics)
    check_architecture(config.model)
    check_model(config.model)
    check_compile_cache(config)
    if device_for is resolve_device:  # else the ranks run elsewhere
        check_machine(config)
    prompts = load_prompts(config.prompts, config.seed)
    if config.mode is Mode.generate:
        check_scorable(config.metrics, [prompt.text for prompt in prompts], config.height, config.width)
    what = effective(config)
    grid = Path(config.output_dir).expanduser().absolute() / config.name
    make_writable(grid, "output_dir")
    plain = to_plain(config)
    folder = RunFolder(grid / signature(what, prompts), planned=_planned(plain, what))
    return Cell(composed=plain, effective=what, prompts=prompts, folder=folder)


@cache
def _schema() -> DictConfig:
    """What a config is checked against; made once for all cells of a grid."""
    return OmegaConf.structured(ExperimentConfig)


def _planned(config: dict[str, Any], what: ExperimentConfig) -> dict[str, Any]:
    """What a run folder will say of a cell, for tables in which it never began."""
    topology = topology_of(what)
    return {
        "method": what.preset.name,
        "is_reference": is_reference(what),
        "topology": {"name": topology.name, "world_size": topology.world_size, "split_batch": topology.split_batch},
        "effective": {
            "k": int(what.k.budget) or None,
            "refresh_period": what.refresh.period,
            "refresh_rolling": what.refresh.rolling,
        },
        "config": config,
        "command": _command(),
    }


def _command() -> str | None:
    """What was typed, where this process is `otil-exp` itself."""
    program = Path(sys.argv[0])
    if program.name != "otil-exp" and program.parts[-2:] != ("otil_exp", "app.py"):
        return None
    return shlex.join(["otil-exp", *sys.argv[1:]])
