"""Ranks of one machine that talk over a slow link: each in a network namespace, its card limited (Linux, root).

The namespaces are joined by a bridge in one more, which a process of ours holds open. Nothing of the machine's own
network is touched, nothing has a name there, and all of it is gone with its processes, however they end.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

COMMANDS = ("ip", "tc", "unshare", "nsenter")
"""What all of it is done with."""

CARD = "rank"
"""Name of a rank's card in its own namespace."""

_CLONE_NEWNET = 0x40000000
_HUB_UP_S = 10.0
_PORT = "29500"
"""MASTER_PORT: rank 0's namespace is new, nobody else listens in it."""


@dataclass(frozen=True)
class NarrowLink:
    """The link of a rank, each way."""

    mbit: float
    """Megabits a second."""

    delay_ms: float = 0.0
    """Added to every packet that a rank sends."""

    @property
    def queues(self) -> list[list[str]]:
        """Arguments of tc, one list a queue: a token bucket, behind a delay where there is one."""
        # What may go at once after a pause: 1 ms, or two packets. With more, a layer's message would cost nothing.
        burst = max(int(self.mbit * 1e6 / 8 * 0.001), 3200)
        bucket = ["tbf", "rate", f"{self.mbit:g}mbit", "burst", str(burst), "latency", "400ms"]
        if not self.delay_ms:
            return [["root", *bucket]]
        delay = ["netem", "delay", f"{self.delay_ms:g}ms", "limit", "100000"]
        return [["root", "handle", "1:", *delay], ["parent", "1:", "handle", "2:", *bucket]]


@dataclass(frozen=True)
class Hub:
    """Where the cards of all ranks meet."""

    process: int
    """It lives in the namespace of the bridge."""

    link: NarrowLink

    def enter(self, rank: int) -> None:
        """Move this process, which has no second thread yet, into a namespace with a limited card to the others.

        From then on it reaches the other ranks and nothing else. What torch.distributed reads is set so.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace for a rank with device.link_mbit")
        inside, port = ["nsenter", "-t", str(self.process), "-n"], f"port{rank}"
        card = ["peer", "name", CARD, "netns", str(os.getpid())]
        _run(*inside, "ip", "link", "add", port, "type", "veth", *card)
        _run(*inside, "ip", "link", "set", port, "master", "hub", "up")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "address", "add", f"{_address(rank)}/16", "dev", CARD)
        _run("ip", "link", "set", CARD, "up")
        for queue in self.link.queues:
            _run("tc", "qdisc", "add", "dev", CARD, *queue)
        bucket = NarrowLink(self.link.mbit).queues[0]  # what comes in is limited, too, but delayed once
        _run(*inside, "tc", "qdisc", "add", "dev", port, *bucket)
        os.environ.update(
            MASTER_ADDR=_address(0),
            MASTER_PORT=_PORT,
            TORCHELASTIC_USE_AGENT_STORE="False",  # elastic's own store is on the other side
            GLOO_SOCKET_IFNAME=CARD,
        )
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would warn that addresses have no names there


@contextmanager
def hub_of(link: NarrowLink | None) -> Iterator[Hub | None]:
    """Make the namespace in which the ranks' cards meet; None where no link is asked for."""
    if link is None:
        yield None
        return
    # It ends when its stdin does: with this process at the latest, even if that is killed.
    process = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        _wait_for_namespace(process.pid)
        inside = ["nsenter", "-t", str(process.pid), "-n"]
        _run(*inside, "ip", "link", "add", "hub", "type", "bridge")
        _run(*inside, "ip", "link", "set", "hub", "up")
        yield Hub(process.pid, link)
    finally:
        process.kill()
        process.wait()


def obstacle(link: NarrowLink) -> str | None:
    """Why this machine cannot have such a link; None if it can. Tries it in a namespace of its own."""
    if missing := [command for command in COMMANDS if which(command) is None]:
        return f"{', '.join(missing)} is not on the PATH (packages iproute2 and util-linux, on Linux)"
    try:
        for queue in link.queues:
            if "parent" not in queue:
                _run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", *queue)
        _run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", *NarrowLink(link.mbit).queues[0])
        _run("unshare", "--net", "ip", "link", "add", "hub", "type", "bridge")
    except RuntimeError as error:
        return str(error)
    return None


def _address(rank: int) -> str:
    return f"10.77.{(rank + 1) // 250}.{(rank + 1) % 250 + 1}"


def _wait_for_namespace(pid: int) -> None:
    own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + _HUB_UP_S
    while os.readlink(Path("/proc", str(pid), "ns", "net")) == own:
        if time.monotonic() > deadline:
            raise RuntimeError(f"unshare --net made no network namespace in {_HUB_UP_S:g} s")
        time.sleep(0.01)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise RuntimeError(f"`{' '.join(command)}` failed: {said} (it takes root, and a kernel that has the queue)")
