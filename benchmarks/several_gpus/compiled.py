"""engine=compiled over NCCL: times of a picture, and of getting ready with nothing compiled yet and everything."""

from __future__ import annotations

from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import cache_dir

from benchmarks.several_gpus.cell_job import CellJob
from benchmarks.several_gpus.cells import cell, name_of, timed
from benchmarks.several_gpus.plan import Plan, forget, keep
from benchmarks.side_by_side import side_by_side
from otil_exp.run_folder.cell import Cell

COMPILED = {
    1024: ("reference", "guide", "otil", "balanced", "full_sync", "otil_fused", "naive_patch"),
    2048: ("reference", "guide", "otil"),
}
"""Side of the pictures -> methods, in the order in which they are timed."""

READY_S = 400.0
TIMED_S = 60.0
WARM_S = 150.0

PATIENT = "launch.collective_timeout_s=300"
"""Ranks wait for each other while they compile."""


def compiled_cells(sides: tuple[int, ...], plan: Plan) -> None:
    """Compile all cells side by side, then time them one after the other; one that fails costs only itself."""
    cells = [
        timed(plan, side, *_method(method, plan), f"engine={plan.compiling}", PATIENT)
        for side in sides
        for method in COMPILED[side]
    ]
    jobs = [CellJob(one, plan.out / "compiled") for one in cells if not one.folder.finished]
    with side_by_side(jobs, READY_S):
        _keep_ready(jobs, plan)
        for job in jobs:
            _keep_failure("compiled_failed", job, job.ready_s is None or not job.go(TIMED_S), plan)


def warm_cells(plan: Plan) -> None:
    """Get the cells of 1024² ready once more, in fresh processes that find everything compiled."""
    jobs = [CellJob(_untimed(method, plan), plan.out / "warm") for method in COMPILED[1024]]
    with side_by_side(jobs, WARM_S):
        _keep_ready(jobs, plan)
        for job in jobs:
            _keep_failure("warm_failed", job, job.ready_s is None, plan)


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


def _untimed(method: str, plan: Plan) -> Cell:
    pixels, steps = plan.sizes(1024)
    shape = (f"height={pixels}", f"width={pixels}", f"num_inference_steps={steps}", "name=warm")
    return cell(plan, *_method(method, plan), *shape, f"engine={plan.compiling}", PATIENT)


def _method(method: str, plan: Plan) -> tuple[str, ...]:
    """Preset, topology and overrides of a method."""
    if method == "otil_fused":
        return "otil", plan.topologies[0], "preset.gn_sync=fused"
    return method, "1gpu" if method == "reference" else plan.topologies[0]
