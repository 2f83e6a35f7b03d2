"""A part in a process of its own: one that hangs or dies costs only itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path

from otil_exp.launch.lifetime import die_with_parent
from otil_exp.selftest.parts import PARTS
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State

_CHILD = "import sys; sys.path[:] = sys.argv[5:]; from otil_exp.selftest.process import child; child(*sys.argv[1:5])"

END_S = 10.0
"""Seconds that a part has to end by itself when its time is over."""

LAST_WORDS = 1000
"""Characters of a part's log that are shown where it ended without a finding."""


def run_part(name: str, plan: Plan, seconds: float | None = None) -> Finding:
    """Try one part in a fresh process, which nothing of it outlives.

    seconds: the bound, that of the part if None.
    """
    bound = PARTS[name].seconds if seconds is None else seconds
    plan.folder.mkdir(parents=True, exist_ok=True)
    log = plan.folder / f"{name}.log"
    arguments = (name, plan.device, str(plan.world_size), str(plan.folder))
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *arguments, *sys.path],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(bound)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also where this process is told to end
            _end(process)
    return replace(_finding(plan, name, code, bound), seconds=round(time.monotonic() - start, 1))


def try_part(name: str, plan: Plan) -> Finding:
    """Try one part in this process; what it raises is a finding, too."""
    try:
        return PARTS[name].function(plan)
    except LeftOutError as why:
        return Finding(State.left_out, str(why))
    except Exception as error:
        traceback.print_exc()
        first_line = (str(error).splitlines() or [""])[0]
        return Finding(State.broken, f"{type(error).__name__}: {first_line}")


def child(name: str, device: str, world_size: str, folder: str) -> None:
    """What the process of a part does."""
    die_with_parent(os.getppid())
    plan = Plan(device, int(world_size), Path(folder))
    _path(plan, name).write_text(json.dumps(asdict(try_part(name, plan))), encoding="utf-8")


def _finding(plan: Plan, name: str, code: int | None, bound: float) -> Finding:
    """What the process left, or why it left nothing."""
    if code is None:
        return Finding(State.broken, f"not done after {bound:g} s{_last_words(plan, name)}")
    path = _path(plan, name)
    if code != 0 or not path.exists():
        return Finding(State.broken, f"its process ended with exit code {code}{_last_words(plan, name)}")
    found = json.loads(path.read_text(encoding="utf-8"))
    return Finding(**found | {"state": State(found["state"])})


def _path(plan: Plan, name: str) -> Path:
    return plan.folder / f"{name}.json"


def _last_words(plan: Plan, name: str) -> str:
    words = (plan.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip()
    return f"; its last words: {words[-LAST_WORDS:]}" if words else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part with all its processes, where it has not ended by itself."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
