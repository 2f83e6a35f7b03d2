"""What a rank says when a collective did not end in time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

LINGER_S = 1.0
"""Seconds a rank lives on after a time-out: all who waited time out too, so that who is left is who did not come."""

# gloo, the store and NCCL, in this order.
_TIMED_OUT = re.compile(
    r"Timed out waiting (?P<gloo>\d+)ms|wait timeout after (?P<store>\d+)ms|Timeout\(ms\)=(?P<nccl>\d+)", re.IGNORECASE
)


@contextmanager
def explained_timeouts() -> Iterator[None]:
    """Turn a collective's time-out into a TimeoutError that says which one, and how to raise it."""
    try:
        yield
    except RuntimeError as error:
        found = _TIMED_OUT.search(str(error))
        if not found:
            raise
        time.sleep(LINGER_S)
        seconds = int(next(filter(None, found.groups()))) / 1000
        raise TimeoutError(
            f"a collective waited {seconds:g} s for the other ranks, the process group's time-out: if they are only "
            f"slow (loading, compiling), raise it, e.g. launch.collective_timeout_s={max(2 * seconds, 60):g}"
        ) from error
