"""From the start of a process to the first step of a compiled rank of otil, one of 4, split: cold, warm, and moved.

    python -m benchmarks.fp8_and_start.start FOLDER [SECONDS]

cold: nothing is compiled. warm: a second process of the same machine. moved: a machine with the files of graphs alone.
Each is a process; what it has reached, at which second, and how long PyTorch's own phases took are printed as JSON, and
in FOLDER/start.json, and then what a silent and a synchronous step take; its words are in FOLDER/START.log. All end
within SECONDS (default 570).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otil_exp.launch.imports import without_collector
from otil_exp.run_folder.whole import write_text

STARTS = {"cold": "here", "warm": "here", "moved": "elsewhere"}
"""Start -> which folder is the machine's cache of compiled code."""

PHASES = 14
"""PyTorch's phases that are told, the longest first."""


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    deadline = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 570)
    figures: dict[str, Any] = {}
    for name in ("here", "elsewhere", "graphs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for start, cache in STARTS.items():
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / cache), "OTIL_EXP_COMPILED": str(folder / "graphs")}
        figures[start] = _started(start, folder, os.environ | variables, deadline - time.monotonic())
        print(start, json.dumps(figures[start]), flush=True)
        write_text(folder / "start.json", json.dumps(figures, indent=1))
    return 0 if all("first_step" in one.get("seconds", {}) for one in figures.values()) else 1


def _started(start: str, folder: Path, environment: dict[str, str], bound: float) -> dict[str, Any]:
    """What one process says, also of how far it came before it failed or was ended."""
    said = folder / f"{start}.json"
    said.unlink(missing_ok=True)
    if bound < 15:
        return {"failed": "no time was left"}
    failed = {}
    with (folder / f"{start}.log").open("w") as log:
        command = [sys.executable, "-m", "benchmarks.fp8_and_start.start", "--rank", repr(time.time()), str(said)]
        try:
            code = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=bound).returncode
            if code:
                failed = {"failed": f"exit status {code}"}
        except subprocess.TimeoutExpired:
            failed = {"failed": f"ended after {bound:.0f} s"}
    figures = json.loads(said.read_text(encoding="utf-8")) if said.exists() else {}
    if failed:
        said.unlink(missing_ok=True)  # so that its log counts as one of a failure
    return failed | figures


class _Marks:
    """At which second after the start of the process something was reached; written at once."""

    def __init__(self, began: float, path: Path) -> None:
        self._began, self._path = began, path
        self._seconds: dict[str, float] = {}
        self._steps: dict[str, Any] = {}

    def reached(self, what: str) -> None:
        self._seconds[what] = round(time.time() - self._began, 1)
        self._write()

    def steps_take(self, figures: dict[str, Any]) -> None:
        """Say what was measured of steps (one_gpu_speed.measure)."""
        self._steps = {"steps": figures}
        self._write()

    def _write(self) -> None:
        write_text(self._path, json.dumps({"seconds": self._seconds, **self._steps, **_counted()}))

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.time()
        yield
        self._seconds[f"{what} took"] = round(time.time() - began, 1)
        self.reached(what)


def _counted() -> dict[str, Any]:
    """Graphs made and found so far, and seconds of PyTorch's phases, which lie within each other."""
    from torch._dynamo import utils

    stats, inductor, autograd = (utils.counters[name] for name in ("stats", "inductor", "aot_autograd"))
    found = {
        "graphs": stats["unique_graphs"],
        **{name: inductor[f"fxgraph_cache_{name}"] for name in ("hit", "miss", "bypass")},
        **{name: autograd[name] for name in ("autograd_cache_hit", "autograd_cache_miss", "autograd_cache_bypass")},
    }
    totals = {name: sum(times) for name, times in utils.compilation_time_metrics.items()}
    longest = sorted(totals, key=lambda name: -totals[name])[:PHASES]
    return {**found, "phases": {name: round(totals[name], 1) for name in longest if totals[name] >= 0.1}}


def _rank(began: float, said: Path) -> None:
    """The process of a rank; its peers are not there."""
    with without_collector():
        import torch

        from benchmarks.one_gpu_speed import rank
        from benchmarks.one_gpu_speed.cases import ON_CPU, Case
        from benchmarks.one_gpu_speed.measure import measured, steps_of
        from otil_exp.rank_unet.sliced import graph

    marks = _Marks(began, said)
    marks.reached("imports")
    case = Case("no_sync", "compiled", 256 if ON_CPU else 1024, gn_sync="true", both=True)
    device = torch.device("cpu" if ON_CPU else "cuda")
    torch.zeros(1, device=device)
    marks.reached("device")
    weights, compile_form = rank.random_unet, graph.Graph._compile

    def timed_weights(*arguments: Any) -> Any:
        with marks.timed("weights"):
            return weights(*arguments)

    def timed_form(self: Any, inputs: Any) -> None:
        form = "silent form" if any(_is_silent(module) for module in self._unet.modules()) else "synchronous form"
        with marks.timed(form):
            compile_form(self, inputs)

    rank.random_unet, graph.Graph._compile = timed_weights, timed_form  # type: ignore[method-assign]
    unet, inputs = rank.prepared_unet(case, device, stored=True)
    marks.reached("ready")
    with torch.no_grad():
        unet.begin(steps_of(case))
        unet(**inputs)
    if not ON_CPU:
        torch.cuda.synchronize()
    marks.reached("first_step")
    marks.steps_take(measured(unet, inputs, case, device)[0])


def _is_silent(module: Any) -> bool:
    return getattr(module, "synchronous", True) is False


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        _rank(float(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
