"""A rank killed in the middle of a step: how long until the job has ended, and does it name the rank?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.several_gpus.plan import Plan, keep
from otil_exp.run_folder.folder import RunFolder

START_S = 70.0
END_S = 45.0


def kill_a_rank(plan: Plan) -> None:
    """Start a run as a user would, kill its last rank with SIGKILL when steps are under way, and wait for the end."""
    pixels, _ = plan.sizes(1024)
    command = [sys.executable, "-m", "otil_exp.app", "preset=full_sync", f"topology={plan.topologies[0]}"]
    command += [f"model={plan.model}", f"device={plan.device}", f"engine={plan.engine}", "metrics=none"]
    command += [f"height={pixels}", f"width={pixels}", "num_inference_steps=1000", "prompts.limit=1"]
    command += [f"output_dir={plan.out}", "name=death"]
    log = plan.out / "death.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        victim = _last_rank(process.pid, plan.world_size)
        time.sleep(20 if plan.device == "cuda" else 8)  # into the steps: loading takes less
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        code = process.wait(END_S)
        took = round(time.monotonic() - killed, 2)
    finally:
        process.kill()
    folder = next(path for path in (plan.out / "death").iterdir() if (path / "record.json").exists())
    record = RunFolder(folder).record
    keep("death", "exit_code", code, plan)
    keep("death", "seconds_to_end", took, plan)
    keep("death", "status", record["status"], plan)
    keep("death", "failed_rank", record["failed_rank"], plan)
    keep("death", "said", log.read_text().strip().splitlines()[-1], plan)


def _last_rank(parent: int, world_size: int) -> int:
    """Process id of the rank with the highest RANK below the parent, once it is there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and _is_rank(folder, parent, world_size - 1):
                return int(folder.name)
        time.sleep(0.2)
    raise TimeoutError(f"no rank {world_size - 1} within {START_S:g} s")


def _is_rank(folder: Path, parent: int, rank: int) -> bool:
    try:
        status = (folder / "status").read_text()
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"\nPPid:\t{parent}\n" in status and f"RANK={rank}".encode() in variables
