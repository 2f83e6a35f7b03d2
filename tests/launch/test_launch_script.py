"""A user's own script, on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from otil_exp.launch import launch

def sees_a_terminal():
    return sys.stdout.isatty()

if __name__ == "__main__":
    print("rank 0 sees a terminal:", launch(sees_a_terminal, 1, log_dir=Path(sys.argv[1])))
"""


@pytest.mark.ranks
@pytest.mark.usefixtures("fresh_processes")
def test_a_function_of_the_main_script_runs_and_rank_zero_sees_the_terminal(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    terminal, slave = pty.openpty()
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "logs")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=slave,
        stderr=slave,
        timeout=60,
    )
    os.close(slave)
    said = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert (done.returncode, said) == (0, "rank 0 sees a terminal: True\r\n")
