"""Processes that start with the libraries loaded (tests/preloaded) are what they would have been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preloaded.stand_in import RANK, process_behind, what_is_run

TELLS = f"""
import os, sys, signal, time  # {RANK}
print(sys.argv[1], os.getcwd(), os.environ["PLANTED"], os.environ.get("OMP_NUM_THREADS"), "torch" in sys.modules)
print(sys.stdin.read(), os.getppid(), file=sys.stderr)
sys.exit(3)
"""

WAITS = f"""
import os, signal, time  # {RANK}
signal.signal(signal.SIGUSR2, lambda *_: print("told", flush=True))
print("here", flush=True)
signal.pause()
time.sleep(600)
"""


def command(code: str) -> list[str]:
    """As a rank is started: what it imports is on its command line."""
    return [sys.executable, "-c", code, "argument", *sys.path]


def test_arguments_folder_environment_streams_and_exit_code_are_its_own(tmp_path: Path) -> None:
    own = os.environ | {"PLANTED": "value", "OMP_NUM_THREADS": "3"}
    done = subprocess.run(
        command(TELLS), cwd=tmp_path, env=own, input="words", capture_output=True, text=True, timeout=120
    )
    assert done.stdout == f"argument {tmp_path} value 3 True\n"
    assert done.stderr == f"words {os.getpid()}\n"
    assert done.returncode == 3


def test_signals_reach_it_and_it_dies_with_its_stand_in() -> None:
    stand_in = subprocess.Popen(command(WAITS), stdout=subprocess.PIPE, text=True)
    assert stand_in.stdout is not None
    assert stand_in.stdout.readline() == "here\n"
    [behind] = process_behind(stand_in.pid)
    stand_in.send_signal(signal.SIGUSR2)
    assert stand_in.stdout.readline() == "told\n"
    stand_in.kill()
    assert stand_in.wait(60) == -signal.SIGKILL
    assert stand_in.stdout.read() == ""  # nobody has the pipe
    deadline = time.monotonic() + 60
    while Path(f"/proc/{behind}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stand_in.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_stand_in_dies_as_the_process_did(number: signal.Signals) -> None:
    code = f"import os  # {RANK}\nos.kill(os.getpid(), {int(number)})"
    assert subprocess.run(command(code), timeout=120).returncode == -number


@pytest.mark.usefixtures("fresh_processes")
def test_without_the_variable_nothing_is_loaded(tmp_path: Path) -> None:
    own = os.environ | {"PLANTED": "value"}
    done = subprocess.run(command(TELLS), cwd=tmp_path, env=own, input="", capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith(" False\n")


def test_what_has_limits_of_its_own_keeps_them(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -f 12345; exec "$@"', "sh", *command(TELLS)]
    own = os.environ | {"PLANTED": "value"}
    done = subprocess.run(limited, cwd=tmp_path, env=own, input="", capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith(" False\n")


def test_other_programs_are_left_alone() -> None:
    """multiprocessing hands open files to its own, which a process elsewhere would not have."""
    tracker = ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"]
    assert what_is_run(tracker) is None
    assert what_is_run(["python", "-m", "pip", "install"]) is None
    assert what_is_run(["python", "-m", "otil_exp.slurm.batch", "-m", "submitit.core._submit"]) is None
    assert what_is_run(["python", "-u", "-m", "otil_exp.app", "-m", "a=1,2"]) == ("m", "otil_exp.app", ["-m", "a=1,2"])
