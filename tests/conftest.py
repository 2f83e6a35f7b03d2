"""What all tests share: configs composed as the app does, processes that start quickly, the core, the workers."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from composing import Compose, Typed
from core import is_core, refuse_processes
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.schema import register_schema
from preloaded.stand_in import STARTED, VARIABLE

PRELOADED, OWNER = Path(__file__).parent / "preloaded", "OTIL_EXP_PRELOADED_FOR"
"""Where the server of libraries is, and the variable with the process that it ends with."""

os.environ["OTIL_EXP_COMPILED"] = ""  # what tests compile is nobody's archive

# A shell that starts the tests in the background lets them ignore SIGINT, and tests of Ctrl-C would hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def composed(tmp_path: object) -> Compose:
    """composed("preset=otil", ...): the config a user's command line gives, run folders below tmp_path."""

    def compose_with(*overrides: str) -> DictConfig:
        config = copy.deepcopy(_composed(overrides))
        if not any(override.lstrip("+~").startswith("output_dir=") for override in overrides):
            config.output_dir = str(tmp_path)
        return config

    return compose_with


@cache
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    """Composing takes a fifth of a second, and many tests start from the same few configs."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return compose("config", list(overrides))


@pytest.fixture
def typed(composed: Compose) -> Typed:
    """typed("preset=otil", ...): the same as an ExperimentConfig, on the CPU."""

    def typed_with(*overrides: str) -> ExperimentConfig:
        merged = OmegaConf.merge(OmegaConf.structured(ExperimentConfig), composed("device=cpu", *overrides))
        config = OmegaConf.to_object(merged)
        assert isinstance(config, ExperimentConfig)
        return config

    return typed_with


@pytest.fixture
def fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and ranks of this test load their libraries themselves, as a user's do."""
    monkeypatch.delenv(VARIABLE, raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="only tests that start no process (tests/core.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Where processes ask for libraries that are loaded already: one place for all workers of pytest-xdist."""
    if config.getoption("--core"):
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers share the cores, and start nothing that inherits it
    if not config.getoption("--core") and VARIABLE not in os.environ:
        folder = tempfile.mkdtemp(prefix="otil-exp-preloaded-")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        path = [str(PRELOADED), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {VARIABLE: f"{folder}/socket", "PYTHONPATH": os.pathsep.join(path), OWNER: str(os.getpid())}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One thread, as a rank has: workers share the cores. Start the server with the first test that may need it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    place = os.environ.get(VARIABLE)
    if place is None or is_core(item):
        return
    started = Path(f"{place}.{STARTED}")
    try:
        started.touch(exist_ok=False)
    except FileExistsError:
        return
    without = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "PYTHONPATH")}
    command = [sys.executable, str(PRELOADED / "server.py"), place, os.environ[OWNER]]
    server = subprocess.Popen(command, env=without | {"OMP_WAIT_POLICY": "passive"}, start_new_session=True)
    started.write_text(str(server.pid))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_begins_late)
    if not config.getoption("--core"):
        return
    left_out = [item for item in items if not is_core(item)]
    items[:] = [item for item in items if is_core(item)]
    config.hook.pytest_deselected(items=left_out)
    refuse_processes()


def _begins_late(item: pytest.Item) -> int:
    """Files that take minutes come first, so that no worker begins one when the others are done."""
    return 0 if item.get_closest_marker("slurm") else 2 if is_core(item) else 1


@pytest.fixture(scope="session")
def one_installs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that whoever installs packages, or looks for free ports, locks meanwhile: one for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installs.lock"
