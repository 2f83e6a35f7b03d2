"""engine=compiled over NCCL: cells of experiments get ready side by side, and how long that takes.

Their times are in their run folders: `otil-report OUT/bench_compiled --markdown`.
"""

from __future__ import annotations

from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import cache_dir

from benchmarks.experiments import points
from benchmarks.several_gpus.cell_job import CellJob
from benchmarks.several_gpus.cells import name_of
from benchmarks.several_gpus.plan import Plan, forget, keep
from benchmarks.side_by_side import side_by_side
from otil_exp.run_folder.cell import Cell

EXPERIMENTS = {1024: ("bench/compiled", "bench/compiled_fused"), 2048: ("bench/compiled_2048",)}
"""Side of the pictures -> experiments, in the order in which they are timed."""

READY_S = 400.0
TIMED_S = 60.0
WARM_S = 150.0

PATIENT = "launch.collective_timeout_s=300"
"""Ranks wait for each other while they compile."""


def compiled_cells(sides: tuple[int, ...], plan: Plan) -> None:
    """Compile all cells side by side, then time them one after the other; one that fails costs only itself."""
    jobs = [CellJob(one, plan.out / "compiled") for one in _cells(sides, plan) if not one.folder.finished]
    with side_by_side(jobs, READY_S):
        _keep_ready(jobs, plan)
        for job in jobs:
            _keep_failure("compiled_failed", job, job.ready_s is None or not job.go(TIMED_S), plan)


def warm_cells(plan: Plan) -> None:
    """Get the cells of 1024² ready once more, in fresh processes that find everything compiled."""
    jobs = [CellJob(one, plan.out / "warm") for one in _cells((1024,), plan, "name=warm")]
    with side_by_side(jobs, WARM_S):
        _keep_ready(jobs, plan)
        for job in jobs:
            _keep_failure("warm_failed", job, job.ready_s is None, plan)


def _cells(sides: tuple[int, ...], plan: Plan, *overrides: str) -> list[Cell]:
    where = (f"output_dir={plan.out}", f"topology={plan.topologies[0]}", "device.threads=1")
    return [
        point.cell
        for side in sides
        for experiment in EXPERIMENTS[side]
        for point in points(experiment, *where, *plan.trial(side), *overrides)
    ]


def _keep_ready(jobs: list[CellJob], plan: Plan) -> None:
    """Keep how long each cell took to get ready: warm where this machine has compiled it before, else cold."""
    for job in jobs:
        name = name_of(job.cell.effective)
        mark = Path(cache_dir(), f"several_gpus {name}")
        keep("warm_s" if mark.exists() else "cold_s", name, job.ready_s, plan)
        if job.ready_s is not None:
            mark.touch()


def _keep_failure(kind: str, job: CellJob, failed: bool, plan: Plan) -> None:
    """Keep a job's last words if it failed; else what an earlier call kept of it is over."""
    name = name_of(job.cell.effective)
    if failed:
        keep(kind, name, job.last_words, plan)
    else:
        forget(kind, name, plan)
