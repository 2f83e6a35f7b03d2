"""However the parent ends, no rank outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ranks, pytest.mark.usefixtures("fresh_processes")]

SCRIPT = """
import signal, sys
from launch.duties import wait_for_ever
from otil_exp.launch import launch
handler = signal.getsignal(signal.SIGINT)
try:
    launch(wait_for_ever, 2, sys.argv[1])
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is handler
    print("interrupted")
"""


def alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@contextmanager
def running_job(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A parent with two ranks that wait for ever, and the ranks' process ids."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that a signal to the group does not reach pytest
    )
    ranks: list[int] = []
    try:
        assert wait_until(lambda: len(list(folder.iterdir())) == 2 or parent.poll() is not None, 60)
        ranks = [int(file.name) for file in folder.iterdir()]
        assert len(ranks) == 2, parent.communicate()
        yield parent, ranks
    finally:
        parent.kill()
        for pid in filter(alive, ranks):
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path):
    with running_job(tmp_path) as (parent, ranks):
        os.killpg(parent.pid, signal.SIGINT)  # what a terminal does
        output, _ = parent.communicate(timeout=30)
        assert (parent.returncode, output) == (0, "interrupted\n")
        assert not any(map(alive, ranks))


def test_sigterm_leaves_no_process_behind(tmp_path: Path):
    with running_job(tmp_path) as (parent, ranks):
        parent.terminate()
        output, _ = parent.communicate(timeout=30)
        assert (parent.returncode, output) == (128 + signal.SIGTERM, "")
        assert not any(map(alive, ranks))


def test_ranks_die_with_a_parent_that_could_not_say_goodbye(tmp_path: Path):
    with running_job(tmp_path) as (parent, ranks):
        parent.kill()
        assert wait_until(lambda: not any(map(alive, ranks)), 10)
