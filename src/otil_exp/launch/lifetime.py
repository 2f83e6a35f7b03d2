"""When a rank ends: with its parent, and soon after it is told to."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

GRACE_S = 5.0
"""Seconds that a rank has to end by itself after SIGINT or a SIGTERM that it handles."""

_PR_SET_PDEATHSIG = 1
_STOP = (signal.SIGINT, signal.SIGTERM)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, even by SIGKILL (prctl(2), Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def leave_when_told() -> None:
    """End this process GRACE_S after SIGINT or a SIGTERM that Python handles.

    A main thread that waits in a collective runs no Python, so no handler either; this thread does not wait with it.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)  # the C handler writes each signal's number
    threading.Thread(target=_wait_for_signal, args=(reader,), name="leave-when-told", daemon=True).start()


def leave_now(status: int) -> NoReturn:
    """End this process without Python's clean-up, which hangs or aborts over a process group that is in use."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _wait_for_signal(reader: socket.socket) -> None:
    while (signum := reader.recv(1)[0]) not in _STOP:
        pass
    time.sleep(GRACE_S)
    os._exit(128 + signum)
