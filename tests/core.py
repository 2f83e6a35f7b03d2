"""The quick part of the tests: `pytest --core`, or `make test-core`. No test of it starts a process."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

STARTERS = (
    *("subprocess", "multiprocessing", "playwright", "wandb"),
    *("otil_exp.launch", "otil_exp.job", "otil_exp.selftest.process", "otil_exp.evaluate", "otil_exp.slurm"),
    *("otil_exp.compiled_cell", "otil_exp.compile_ahead"),
    *("otil_exp.run.execution", "tiny_sd"),
    *("ranks", "pipelines", "trajectories", "benchmark_jobs", "cluster", "small_run"),
)
"""Modules, of Python, of the tests and of ours, whose users start processes, or take seconds to be imported."""

STARTING = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
"""What Python audits when a process starts."""

SLOW = ("ranks", "gpu", "slurm", "slow")
"""Marks of tests that are not of the core."""


def is_core(item: pytest.Item) -> bool:
    """Whether a test starts no process, as far as its module's imports and its marks say."""
    return not any(item.get_closest_marker(mark) for mark in SLOW) and not starts_processes(item.path)


def refuse_processes() -> None:
    """From now on, starting a process is an error in this one."""

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event in STARTING:
            raise RuntimeError(f"{event} in a test of the core: name what starts it in tests/core.py, or mark the test")

    sys.addaudithook(refuse)


@cache
def starts_processes(path: Path) -> bool:
    """Whether a module imports what starts processes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return any(name == starter or name.startswith(f"{starter}.") for name in imported for starter in STARTERS)
