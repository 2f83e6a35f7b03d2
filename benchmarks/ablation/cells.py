"""The cells of conf/experiment/ablation, each once, in the order in which they matter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.run_folder.cell import Cell
from otil_exp.schema import register_schema

EXPERIMENTS = (
    *("methods", "budget", "halos", "every", "codec", "score", "overlap"),
    *("tensor", "refresh", "block_size", "polling", "warmup"),
)


@dataclass(frozen=True)
class Point:
    """One cell of one experiment."""

    experiment: str
    overrides: tuple[str, ...]
    """What the experiment varies."""
    cell: Cell


def points(experiment: str, *overrides: str) -> list[Point]:
    """All cells of an experiment, as `otil-exp -m experiment=ablation/NAME` composes them; overrides: for all alike."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        name = f"experiment=ablation/{experiment}"
        params = compose("config", [name], return_hydra_config=True).hydra.sweeper.params
        choices = [_choices(key, value) for key, value in params.items()]
        return [
            Point(experiment, chosen, prepare(compose("config", [name, *chosen, *overrides])))
            for chosen in itertools.product(*choices)
        ]


def _choices(key: str, value: str) -> list[str]:
    override = OverridesParser.create().parse_override(f"{key}={value}")
    values = override.sweep_string_iterator() if override.is_sweep_override() else [value]
    return [f"{key}={choice}" for choice in values]
