"""A Slurm of two nodes with accounting, started once for all tests that need one."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm.cluster import ONE_NODE_SLURM, Cluster


@pytest.fixture(scope="session")
def slurm_packages(one_installs: Path) -> None:
    """Installs Slurm where it may; skips where it may not, unless REQUIRE_SLURM is set."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        words = "a real Slurm is installed and started by root on Debian or Ubuntu only: its tests did not run"
        pytest.fail(words) if os.environ.get("REQUIRE_SLURM") else pytest.skip(words)
    with alone(one_installs):
        subprocess.run([ONE_NODE_SLURM, "install", "--accounting"], check=True, timeout=280, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, one_installs: Path, slurm_packages: None) -> Iterator[Cluster]:
    """One a worker."""
    yield from started(tmp_path_factory.mktemp("slurm"), one_installs, "--nodes", "2", "--accounting")


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """While no other worker is here."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def started(folder: Path, lock: Path, *options: str) -> Iterator[Cluster]:
    """A running Slurm below a folder; stopped afterwards."""
    place = ["--dir", str(folder)]
    try:
        with alone(lock):  # a port is free until its Slurm listens
            done = subprocess.run(
                [ONE_NODE_SLURM, "start", *place, "--port", str(free_ports()), *options],
                capture_output=True,
                text=True,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        yield Cluster(conf=str(folder / "etc" / "slurm.conf"))
    finally:
        subprocess.run([ONE_NODE_SLURM, "stop", *place], timeout=120, check=True)


def free_ports() -> int:
    """The first of 20 TCP ports that are free now."""
    for first in range(26817, 32000, 20):
        try:
            for port in range(first, first + 20):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no 20 free ports in a row")
