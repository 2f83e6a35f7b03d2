"""Configs composed for tests: types of the fixtures (conftest.py), and a way to compose that is quick."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from otil_exp.conf_tree import conf_folder, groups
from otil_exp.config import ExperimentConfig
from otil_exp.schema import register_schema

Compose = Callable[..., DictConfig]
Typed = Callable[..., ExperimentConfig]


def composed_of(*overrides: str) -> DictConfig:
    """What Hydra composes of a command line, which takes it a fifth of a second, put together from what is kept.

    A choice of a group is a part of the config of its own, unless an experiment has a word in it; values that are typed
    come last, by Hydra's own function.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = [word for word, one in zip(overrides, parsed, strict=True) if not _is_value(one)]
    config = copy.deepcopy(_of_choices(*sorted(choices, key=lambda word: word.partition("=")[0])))
    ConfigLoaderImpl._apply_overrides_to_config([one for one in parsed if _is_value(one)], config)
    return config


def _is_value(override: Override) -> bool:
    """Whether it sets what is there already, in no group of choices."""
    plain = not (override.is_add() or override.is_force_add() or override.is_delete() or override.is_sweep_override())
    group = override.key_or_group.partition("/")[0]
    return plain and override.package is None and not override.is_hydra_override() and group not in _groups()


@cache
def _groups() -> frozenset[str]:
    return frozenset(groups())


@cache
def _of_choices(*choices: str) -> DictConfig:
    parts = [word for word in choices if word.partition("=")[0] in _groups() - {"preset", "experiment"}]
    others = [word for word in choices if word not in parts]
    if any(not word.startswith("preset=") for word in others):
        return _of_hydra(*choices)
    config = copy.deepcopy(_of_hydra(*others))
    for word in parts:
        group = word.partition("=")[0]
        config[group] = copy.deepcopy(_of_hydra(word)[group])
    return config


@cache
def sweep_of(*overrides: str) -> dict[str, str]:
    """What the sweeper of an experiment goes through, values of each key as they would be typed."""
    config = _of_hydra(*overrides, hydra=True).hydra
    assert config.mode.name == "MULTIRUN"
    return {key: str(values) for key, values in config.sweeper.params.items()}


@cache
def _of_hydra(*overrides: str, hydra: bool = False) -> DictConfig:
    """hydra: with Hydra's own part."""
    _schema_is_known()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return compose("config", list(overrides), return_hydra_config=hydra)


@cache
def _schema_is_known() -> None:
    register_schema()
