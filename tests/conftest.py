"""What all tests share: configs composed as the app does, processes that start quickly, the core, the workers."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from composing import Compose, Typed, composed_of
from core import is_core, refuse_processes, starts_processes
from otil_exp.config import ExperimentConfig
from preloaded.stand_in import STARTED, VARIABLE
from whole_grid import make_grid

PRELOADED, OWNER = Path(__file__).parent / "preloaded", "OTIL_EXP_PRELOADED_FOR"
"""Where the server of libraries is, and the variable with the process that it ends with."""

os.environ["OTIL_EXP_COMPILED"] = ""  # what tests compile is nobody's archive

# Python compiles each source once, and not in every process, also where images of containers have it otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the tests in the background lets them ignore SIGINT, and tests of Ctrl-C would hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def composed(tmp_path: object) -> Compose:
    """composed("preset=otil", ...): the config a user's command line gives, run folders below tmp_path."""

    def compose_with(*overrides: str) -> DictConfig:
        config = composed_of(*overrides)
        if not any(override.lstrip("+~").startswith("output_dir=") for override in overrides):
            config.output_dir = str(tmp_path)
        return config

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


@pytest.fixture
def fresh_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and ranks of this test load their libraries themselves, as a user's do."""
    monkeypatch.delenv(VARIABLE, raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="only tests that start no process (tests/core.py)")
    parser.addoption("--rest", action="store_true", help="only the others")


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, what is not of the core."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and config.getoption("--core") and starts_processes(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_begins_late)
    core, rest = config.getoption("--core"), config.getoption("--rest")
    if not core and not rest:
        return
    config.hook.pytest_deselected(items=[item for item in items if is_core(item) != core])
    items[:] = [item for item in items if is_core(item) == core]
    if core:
        refuse_processes()


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look through it, a second each time."""
    gc.collect()
    gc.freeze()


def _begins_late(item: pytest.Item) -> int:
    """Files that take minutes come first, so that no worker begins one when the others are done."""
    return 0 if item.get_closest_marker("slurm") else 2 if is_core(item) else 1


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers have."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def one_installs(shared: Path) -> Path:
    """A file that whoever installs packages, or looks for free ports, locks meanwhile: one for all workers."""
    return shared / "installs.lock"


@pytest.fixture(scope="session")
def finished_grid(shared: Path) -> Path:
    """Folder of a finished grid (whole_grid.py) that tests read, and copy before they change it."""
    return make_grid(shared / "whole_grid")
