"""`otil-exp --help | head`: who stops reading is no error of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.usefixtures("fresh_processes")
def test_a_reader_that_leaves_ends_the_app_without_a_traceback() -> None:
    """The pipe is closed before anything is written."""
    app = subprocess.Popen(
        [sys.executable, "-m", "otil_exp.app", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert app.stdout is not None
    assert app.stderr is not None
    app.stdout.close()
    said = app.stderr.read()
    assert app.wait(timeout=120) == 128 + 13  # as a shell calls SIGPIPE
    assert said == ""
