"""Compose the real conf/ tree, as the app does."""

from __future__ import annotations

import os
import signal

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from composing import Compose, Typed
from core import is_core, refuse_processes
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.schema import register_schema

os.environ["OTIL_EXP_COMPILED"] = ""  # what tests compile is nobody's archive

# A shell that starts the tests in the background lets them ignore SIGINT, and tests of Ctrl-C would hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def composed(tmp_path: object) -> Compose:
    """composed("preset=otil", ...): the config a user's command line gives, run folders below tmp_path."""

    def compose_with(*overrides: str) -> DictConfig:
        register_schema()
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            return compose("config", [f"output_dir={tmp_path}", *overrides])

    return compose_with


@pytest.fixture
def typed(composed: Compose) -> Typed:
    """typed("preset=otil", ...): the same as an ExperimentConfig, on the CPU."""

    def typed_with(*overrides: str) -> ExperimentConfig:
        merged = OmegaConf.merge(OmegaConf.structured(ExperimentConfig), composed("device=cpu", *overrides))
        config = OmegaConf.to_object(merged)
        assert isinstance(config, ExperimentConfig)
        return config

    return typed_with


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="only tests that start no process (tests/core.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--core"):
        return
    left_out = [item for item in items if not is_core(item)]
    items[:] = [item for item in items if is_core(item)]
    config.hook.pytest_deselected(items=left_out)
    refuse_processes()
