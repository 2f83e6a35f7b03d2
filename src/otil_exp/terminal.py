"""The terminal: what a user typed is shown as it was typed, and who stops reading is no error."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints words as they are: square brackets in a prompt, a name or a path are no markup, and
    :smile: is no emoji. A sentence stays one line, in a file as well.

    stderr: write there instead of to stdout; quiet: print nothing.
    """
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True)


@contextmanager
def for_a_reader() -> Iterator[None]:
    """Around a command, or over its `main`: a reader that leaves, as of `otil-exp --help | head`, ends it quietly.

    Raises SystemExit with what a shell calls SIGPIPE.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter's own flush complains
        sys.exit(128 + signal.SIGPIPE)
