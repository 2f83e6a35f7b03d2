"""From the start of a process to the first step of a compiled rank of otil, one of 4, split: cold, warm, and moved.

    python -m benchmarks.fp8_and_start.start FOLDER

cold: nothing is compiled. warm: a second process of the same machine. moved: a machine that has the archive alone.
Each is a process; prints seconds and graphs as JSON, and writes them to FOLDER/start.json.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BOUND_S = float(os.environ.get("COMPILE_TIMEOUT_S", 400))
"""Of one process."""

STARTS = {"cold": "here", "warm": "here", "moved": "elsewhere"}
"""Start -> which folder is the machine's cache of compiled code."""


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    figures: dict[str, Any] = {}
    for name in ("here", "elsewhere", "archives"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for start, cache in STARTS.items():
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / cache), "OTIL_EXP_COMPILED": str(folder / "archives")}
        figures[start] = _started(os.environ | variables)
        print(start, json.dumps(figures[start]), flush=True)
        (folder / "start.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0 if all("seconds" in one for one in figures.values()) else 1


def _started(environment: dict[str, str]) -> dict[str, Any]:
    """What one process says, or how it failed."""
    command = [sys.executable, "-m", "benchmarks.fp8_and_start.start", "--rank", repr(time.time())]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        return {"failed": f"not ready after {BOUND_S:g} s"}
    if done.returncode:
        return {"failed": done.stderr[-2000:]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _rank(began: float) -> None:
    """The process of a rank; its peers are not there."""
    import torch
    from torch._dynamo.utils import counters

    from benchmarks.one_gpu_speed.cases import ON_CPU, Case
    from benchmarks.one_gpu_speed.measure import steps_of
    from benchmarks.one_gpu_speed.rank import prepared_unet

    imported = time.time()
    case = Case("no_sync", "compiled", 256 if ON_CPU else 1024, gn_sync="true", both=True)
    device = torch.device("cpu" if ON_CPU else "cuda")
    unet, inputs = prepared_unet(case, device, archived=True)
    ready = time.time()
    with torch.no_grad():
        unet.begin(steps_of(case))
        unet(**inputs)
    if not ON_CPU:
        torch.cuda.synchronize()
    seconds = {"imports": imported - began, "ready": ready - began, "first_step": time.time() - began}
    graphs = {name: counters["inductor"][f"fxgraph_cache_{name}"] for name in ("hit", "miss", "bypass")}
    dynamo = {"graphs": counters["stats"]["unique_graphs"]}
    print(json.dumps({"seconds": {name: round(one, 1) for name, one in seconds.items()}, **graphs, **dynamo}))


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        _rank(float(sys.argv[2]))
    else:
        sys.exit(main())
