"""Run-time patches of distrifuser: each a named function that says what it changes and why.

A patch is a context manager over a class or module of distrifuser, so it acts on the whole process while it is entered.
distrifuser's files are never edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from otil_exp.upstream.patches.comm_queue import comm_queue
from otil_exp.upstream.patches.context_gather import context_gather
from otil_exp.upstream.patches.conv_shortcut import conv_shortcut
from otil_exp.upstream.patches.exact_groupnorm import exact_groupnorm
from otil_exp.upstream.patches.gn_sync import gn_sync
from otil_exp.upstream.patches.partial_sums import partial_sums
from otil_exp.upstream.patches.peft_flag import peft_flag

PATCHES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "peft_flag": peft_flag,
    "conv_shortcut": conv_shortcut,
    "comm_queue": comm_queue,
    "context_gather": context_gather,
    "partial_sums": partial_sums,
    "exact_groupnorm": exact_groupnorm,
    "gn_sync": gn_sync,  # wraps the forward that exact_groupnorm installs, hence after it
}


@contextmanager
def applied(*names: str) -> Iterator[None]:
    """Apply the named patches inside the block, in the order of PATCHES, and undo them after it."""
    unknown = set(names) - set(PATCHES)
    if unknown:
        raise ValueError(f"no patch is called {', '.join(sorted(unknown))}: there are {', '.join(PATCHES)}")
    with ExitStack() as stack:
        for name, patch in PATCHES.items():
            if name in names:
                stack.enter_context(patch())
        yield


__all__ = [
    "PATCHES",
    "applied",
    "comm_queue",
    "context_gather",
    "conv_shortcut",
    "exact_groupnorm",
    "gn_sync",
    "partial_sums",
    "peft_flag",
]
