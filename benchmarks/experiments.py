"""The cells of an experiment of conf/experiment, as data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.run_folder.cell import Cell
from otil_exp.schema import register_schema
from otil_exp.topology import resolve_device


@dataclass(frozen=True)
class Point:
    """One cell of one experiment."""

    experiment: str
    overrides: tuple[str, ...]
    """What the experiment varies."""
    cell: Cell


def points(experiment: str, *overrides: str, device_for: Callable[[str, int], str] = resolve_device) -> list[Point]:
    """All cells of an experiment, as `otil-exp -m experiment=NAME` composes them.

    overrides: for all alike. device_for: settles device=, as `prepare` says.
    """
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        name = f"experiment={experiment}"
        params = compose("config", [name], return_hydra_config=True).hydra.sweeper.params
        choices = [_choices(key, str(value)) for key, value in params.items()]
        return [
            Point(experiment, chosen, prepare(compose("config", [name, *chosen, *overrides]), device_for))
            for chosen in itertools.product(*choices)
        ]


def _choices(key: str, value: str) -> list[str]:
    override = OverridesParser.create().parse_override(f"{key}={value}")
    values = override.sweep_string_iterator() if override.is_sweep_override() else [value]
    return [f"{key}={choice}" for choice in values]
