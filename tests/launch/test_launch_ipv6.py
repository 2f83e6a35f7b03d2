"""Hosts that have IPv6 alone: ranks meet there all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

HOST = """
ip link set lo up && ip -4 address flush dev lo && mount --bind "$1" /etc/hosts &&
! ip -4 address show | grep -q inet && exec "$2" -c "$3"
"""
"""A host without any IPv4 address, by namespaces. $1: its /etc/hosts, $2: Python, $3: what it runs."""

CODE = "from launch import duties; from otil_exp.launch import launch; print('sum', launch(duties.sum_of_ranks, 2))"


@pytest.mark.ranks
def test_ranks_meet_where_there_is_no_ipv4(tmp_path: Path) -> None:
    """Ranks 0 and 1 add up to 1."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("a host without IPv4 is made by root, with unshare and ip")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"::1 localhost\n::1 {os.uname().nodename}\n")
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", HOST, "sh", str(hosts), sys.executable, CODE],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.stdout == "sum 1\n", done.stderr
