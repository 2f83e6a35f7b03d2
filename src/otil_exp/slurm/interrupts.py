"""Ctrl-C at a moment that bears it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended, and keep it from programs started inside; main thread only.

    Raises KeyboardInterrupt after the block, if it was pressed meanwhile.
    """
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # started programs inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what was pressed arrives here
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt
