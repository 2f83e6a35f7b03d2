"""A rank that is killed in the middle of a run: does the job end within its bound, and does it name the rank?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State

READY_S = 150.0
"""Bound on the ranks being in their steps."""

INTO_STEPS_S = 2.0
"""How long they are let go on."""

END_S = 45.0
"""Bound on the end of the job after the kill."""

TOPOLOGIES = (2, 4, 8)
"""Ranks over which the rows of a picture of 256 x 256 divide."""


def death(plan: Plan) -> Finding:
    """Start a run as a user would, kill its last rank with SIGKILL when steps are under way, and wait for the end."""
    if not Path("/proc/self/environ").exists():
        raise LeftOutError("processes are found by /proc, which this system has not")
    ranks = max(each for each in TOPOLOGIES if each <= plan.ranks)
    log = plan.folder / "death_run.log"
    with log.open("w") as output:
        process = subprocess.Popen(_command(plan, ranks), stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_for_steps(plan, process, log)
        victim = _rank(process.pid, ranks - 1)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        try:
            code: int | None = process.wait(END_S)
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - killed
    finally:
        process.kill()  # its ranks die with it
        process.wait()
    return judge_death(code, took, _record(plan), ranks - 1)


def judge_death(code: int | None, took: float, record: dict[str, Any], rank: int) -> Finding:
    """What the end of the job comes to.

    code: its exit code, None where it did not end. took: seconds from the kill to the end. record: of the run.
    rank: which was killed.
    """
    noted = {key: record.get(key) for key in ("status", "failed_rank", "error")}
    figures = {"exit_code": code, "seconds_to_end": round(took, 2), **noted}
    if code is None:
        words = f"rank {rank} was killed, and the job had not ended {END_S:g} s later: ranks would hold their GPUs"
        return Finding(State.broken, f"{words}. A lower launch.collective_timeout_s may end it sooner", figures)
    if code == 0 or noted["status"] != "failed" or noted["failed_rank"] != rank:
        words = f"rank {rank} was killed; the job ended with exit code {code}, status {noted['status']}, failed rank"
        return Finding(State.broken, f"{words} {noted['failed_rank']}: a dead rank is not told from others", figures)
    return Finding(State.fine, f"rank {rank} was killed: the job ended after {took:.1f} s and named it", figures)


def _command(plan: Plan, ranks: int) -> list[str]:
    """Steps without end, of the model that ships."""
    engine = "cuda_graph" if plan.kind == "cuda" else "eager"
    run = [sys.executable, "-m", "otil_exp.app", "preset=full_sync", f"topology={ranks}gpu_nosplit", "model=shapes"]
    run += [f"device={plan.kind}", f"engine={engine}", "metrics=none", "num_inference_steps=999"]
    return [*run, f"output_dir={plan.folder}", "name=death", "launch.collective_timeout_s=30"]


def _wait_for_steps(plan: Plan, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the pipelines are ready, and into the steps."""
    deadline = time.monotonic() + READY_S
    while "engine_runs_as" not in _record(plan):
        if process.poll() is not None:
            words = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
            raise RuntimeError(f"the run ended by itself with exit code {process.returncode}; it said: {words}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run was not in its steps after {READY_S:g} s")
        time.sleep(0.2)
    time.sleep(INTO_STEPS_S)


def _record(plan: Plan) -> dict[str, Any]:
    """record.json of the run; empty before there is one."""
    found = next((plan.folder / "death").glob("*/record.json"), None)
    record: dict[str, Any] = json.loads(found.read_text(encoding="utf-8")) if found else {}
    return record


def _rank(parent: int, rank: int) -> int:
    """Process id of a rank below its parent."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _is_rank(folder, parent, rank):
            return int(folder.name)
    raise RuntimeError(f"no process of rank {rank} was found below process {parent}")


def _is_rank(folder: Path, parent: int, rank: int) -> bool:
    try:
        status = (folder / "status").read_text()
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"\nPPid:\t{parent}\n" in status and f"RANK={rank}".encode() in variables
