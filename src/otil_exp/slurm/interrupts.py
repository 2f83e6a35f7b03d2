"""Signals at a point where nothing is lost by them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, kill, and a terminal or connection that is gone."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP wait until the block has ended, and keep them from programs started inside.

    Main thread only. What came meanwhile has its effect after the block.
    """
    came: list[int] = []
    handlers = {number: signal.signal(number, lambda signum, _: came.append(signum)) for number in _ENDS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # started programs inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what waited arrives here
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for signum in dict.fromkeys(came):
        signal.raise_signal(signum)


@contextmanager
def ends_raise() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block for SIGTERM and SIGHUP too, unless they are ignored (nohup)."""

    def interrupt(signum: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
