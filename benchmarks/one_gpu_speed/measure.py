"""What a step takes: milliseconds, host work, memory, kernels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.one_gpu_speed.cases import Case
from benchmarks.one_gpu_speed.rank import WARMUP_STEPS
from otil_exp.schedule import Step, schedule

REPEATS = 20
"""Of a silent step at 1024²; fewer of a larger one, more of a smaller one."""

SYNCHRONOUS_REPEATS = 8

AWAKE_S = 1.0
"""Of work before anything is timed."""


def measured(
    unet: Any, inputs: dict[str, Any], case: Case, device: torch.device
) -> tuple[dict[str, Any], torch.Tensor]:
    """Medians of a steady step and, if it is ready, of a synchronous one; and the output of a steady one."""
    unet.begin(steps_of(case))
    _wake(device)
    result: dict[str, Any] = {}
    repeats = max(5, REPEATS * 1024 // case.size) if case.engine == "compiled" or case.world_size > 1 else 5
    with torch.no_grad():
        if case.both:
            result["synchronous_ms"], _ = _times(lambda: unet(**inputs), device, SYNCHRONOUS_REPEATS, skip=2)
            assert unet._next <= WARMUP_STEPS + 1, "a silent step was timed as a synchronous one"
        elif case.engine != "compiled":  # upstream's text keys and values are there once a synchronous step was made
            unet(**inputs)
        unet._next = WARMUP_STEPS + 1
        result["step_ms"], result["host_ms"] = _times(lambda: unet(**inputs), device, repeats, skip=3)
        if device.type == "cuda":
            result["host_waits"] = host_waits(lambda: unet(**inputs))
        output = unet(**inputs).sample
    result["finite"] = bool(output.isfinite().all())
    result["output_std"] = float(output.float().std())
    result["runs_as"] = unet.method.runs_as
    result["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    result["graphs"] = dict(torch._dynamo.utils.counters["stats"]).get("unique_graphs", 0)
    return result, output


def _wake(device: torch.device) -> None:
    """Keep a GPU that has waited for its turn busy until its clocks are up."""
    if device.type == "cuda":
        matrix, awake = torch.zeros(4096, 4096, dtype=torch.float16, device=device), time.monotonic() + AWAKE_S
        while time.monotonic() < awake:
            matrix @ matrix
            torch.cuda.synchronize()


def steps_of(case: Case) -> tuple[Step, ...]:
    """More steps than any measurement takes."""
    return schedule(400, WARMUP_STEPS if case.world_size > 1 else -1)


def kernels(unet: Any, inputs: dict[str, Any], case: Case) -> str:
    """Where the GPU spends a steady step: kernels by total time."""
    unet.begin(steps_of(case))
    unet._next = WARMUP_STEPS + 10
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as profiler:
        unet(**inputs)
        torch.cuda.synchronize()
    found = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found)
    lines = [f"{total / 1e3:.2f} ms in {sum(event.count for event in found)} kernels"]
    return "\n".join(lines + [f"{e.self_device_time_total:9.0f} us {e.count:5d} x {e.key[:110]}" for e in found[:45]])


def host_waits(run: Callable[[], object]) -> dict[str, int]:
    """Where a call makes the host wait for the GPU, and how often."""
    found: dict[str, int] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        run()
        torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "called a synchronizing" in str(warning.message):
            place = f"{'/'.join(Path(warning.filename).parts[-2:])}:{warning.lineno}"
            found[place] = found.get(place, 0) + 1
    return found


def _times(run: Callable[[], object], device: torch.device, repeats: int, skip: int) -> tuple[float, float]:
    """Median milliseconds of a call, and of handing it to an idle GPU."""
    for _ in range(skip):
        run()
    if device.type == "cpu":
        own = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            own.append(1e3 * (time.perf_counter() - start))
        return median(own), 0.0
    torch.cuda.synchronize()
    marks, host = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)], []
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    for _ in range(min(repeats, 3)):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        host.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) for a, b in pairwise(marks)), median(host)
