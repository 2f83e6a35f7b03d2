"""The terminal: what a user typed is shown as it was typed."""

from __future__ import annotations

from rich.console import Console


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints words as they are: square brackets in a prompt, a name or a path are no markup, and
    :smile: is no emoji. A sentence stays one line, in a file as well.

    stderr: write there instead of to stdout; quiet: print nothing.
    """
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True)
