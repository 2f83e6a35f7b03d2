"""`otil-exp --help | head`: who stops reading is no error of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

PIPE = 128 + 13
"""As a shell calls an end by SIGPIPE."""

COMMANDS = (
    *("app.main", "evaluate.main", "status.status_main", "status.cancel_main", "fetch.main"),
    *("report.command.main", "selftest.command.main"),
)


@pytest.mark.usefixtures("fresh_processes")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves_ends_a_command_without_a_traceback(command: str) -> None:
    """The pipe is closed before anything is written."""
    module, main = command.rsplit(".", 1)
    code = f"import sys; from otil_exp.{module} import {main} as main; sys.exit(main())"
    app = subprocess.Popen(
        [sys.executable, "-c", code, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert app.stdout is not None
    assert app.stderr is not None
    app.stdout.close()
    said = app.stderr.read()
    assert app.wait(timeout=120) in (0, PIPE)  # argparse itself drops what nobody reads
    assert said == ""


def test_what_is_printed_to_nobody_ends_a_command_quietly() -> None:
    code = "from otil_exp.terminal import for_a_reader\nfor_a_reader()(lambda: print('row ' * 100_000))()"
    app = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert app.stdout is not None
    assert app.stderr is not None
    app.stdout.close()
    assert (app.stderr.read(), app.wait(timeout=60)) == ("", PIPE)
