"""Offline runs synced to a server that speaks W&B's protocol: openwandb (PyPI), a test aid that is not in the lock.

Its licence is non-commercial; `pip install openwandb` anywhere on PATH runs this test.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from small_run import begun, fail_after_the_first_picture, rows_of, write_picture, write_results
from wandb_files import runs_of

from otil_exp.tracking import tracked
from otil_exp.tracking.facts import run_id

pytestmark = pytest.mark.skipif(shutil.which("openwandb") is None, reason="openwandb is not on PATH")


def fetch(url: str) -> Any:
    with urlopen(url, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of a server of this machine alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["openwandb", "serve", "--host", "127.0.0.1", "--port", str(port), "--data-dir", str(tmp_path / "server")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try:
                fetch(f"http://127.0.0.1:{port}/api/v2/projects")
                break
            except URLError:
                time.sleep(0.25)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_two_jobs_of_a_run_arrive_as_one_run_with_its_pictures_and_metrics(tmp_path: Path, server: str) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    fail_after_the_first_picture(cell)
    begun(tmp_path, "tracker=wandb_offline")
    with tracked(cell.effective, cell.folder, is_main=True) as tracker:
        write_picture(cell, 1)
        tracker.steps(rows_of(1))
        tracker.picture(cell.prompts[1])
        write_results(cell)

    account = {"WANDB_BASE_URL": server, "WANDB_API_KEY": "local0000000000000000000000000000000000000000"}
    wandb = str(Path(sys.executable).with_name("wandb"))
    subprocess.run(
        [wandb, "sync", "--yes", *runs_of(cell.folder)], env=os.environ | account, cwd=tmp_path, check=True, timeout=120
    )

    run = run_id(cell.folder.record)
    assert fetch(f"{server}/api/v2/runs/{run}")["run"]["state"] == "finished"
    logged = fetch(f"{server}/api/v2/runs/{run}/metrics")["metrics_by_key"]
    assert [entry["value"] for entry in logged["step/ms"]] == [0, 10, 20, 100, 110, 120]
    assert [entry["value"] for entry in logged["latency/step_ms"]] == [110.5]
    names = [file["name"] for file in fetch(f"{server}/api/v1/runs/{run}/files")["files"]]
    for prompt in ("00", "01"):
        assert [name for name in names if name.startswith(f"media/images/picture/{prompt}_")]
