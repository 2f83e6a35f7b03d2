"""Cells of a grid on ranks that stay: one start of the processes for all cells of a topology."""

from __future__ import annotations

import gc
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from plan import METHODS, Plan, keep, results

from otil_exp.app import conf_folder
from otil_exp.cell import Cell, prepare
from otil_exp.config import DeviceKind, ExperimentConfig, register_schema
from otil_exp.launch import RankFailure, launch
from otil_exp.run.execution import perform
from otil_exp.run.folder import RunFolder
from otil_exp.topology import Topology, join, leave

TIMEOUT_S = 60.0


def timed_cells(part: str, side: int, plan: Plan) -> None:
    """mode=benchmark of every method on both topologies, and of the reference on one GPU."""
    pixels, steps = plan.sizes(side)
    shape = (f"height={pixels}", f"width={pixels}", f"num_inference_steps={steps}", "mode=benchmark")
    often = (*shape, "benchmark.warmup_images=1", f"benchmark.repeats={2 if side == 1024 else 1}")
    often = (*often, "benchmark.drop_extremes=0")
    nosplit, split = plan.topologies
    engine = f"engine={plan.engine}"
    run_cells(part, [cell(plan, "reference", "1gpu", engine, *often)], plan)
    run_cells(part, [cell(plan, method, nosplit, engine, *often) for method in METHODS], plan)
    methods = METHODS if plan.world_size > 2 else ("otil",)  # two ranks that split the batch have one slice each
    run_cells(part, [cell(plan, method, split, engine, *often) for method in methods], plan)
    if side == 1024 and plan.device == "cuda":
        run_cells(
            part, [cell(plan, method, nosplit, "engine=eager", *often) for method in ("otil", "distrifusion")], plan
        )


def cell(plan: Plan, method: str, topology: str, *overrides: str, device: str | None = None) -> Cell:
    """One composed and checked cell, as `otil-exp` makes it."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        common = (f"model={plan.model}", f"device={device or plan.device}", "prompts.limit=1", "metrics=none")
        where = (f"output_dir={plan.out}", "name=runs", f"launch.collective_timeout_s={TIMEOUT_S}")
        return prepare(compose("config", [f"preset={method}", f"topology={topology}", *common, *where, *overrides]))


def run_cells(part: str, cells: list[Cell], plan: Plan) -> None:
    """Run cells of one topology on one set of ranks; one that fails is kept as such, and the next ones run."""
    while cells:
        arguments = [(one.effective, one.composed, one.prompts, str(one.folder.path)) for one in cells]
        try:
            world_size = cells[0].effective.topology.world_size
            launch(_perform_all, world_size, part, arguments, plan, log_dir=plan.out / "logs" / part)
            return
        except RankFailure as failure:  # fresh ranks for what comes after the cell that failed
            done = results(plan).get(part, {})
            failed = next(index for index, one in enumerate(cells) if name_of(one.effective) not in done)
            keep(part, name_of(cells[failed].effective), f"failed: {failure.message.splitlines()[-1]}", plan)
            cells = cells[failed + 1 :]


def _perform_all(part: str, cells: list[tuple[Any, ...]], plan: Plan) -> None:
    first = cells[0][0]
    topology = Topology(world_size=first.topology.world_size, split_batch=first.topology.split_batch)
    ranks = join(topology, first.device.kind.name, TIMEOUT_S)
    for effective, composed, prompts, path in cells:
        folder = RunFolder(Path(path))
        perform(ranks, effective, composed, prompts, folder)
        if ranks.is_main:
            keep(part, name_of(effective), figures(folder), plan)
        gc.collect()
        if ranks.device.type == "cuda":
            torch.cuda.empty_cache()
    leave()


def name_of(effective: ExperimentConfig) -> str:
    """Method, topology, engine, device and size of a cell."""
    topology = effective.topology
    split = "" if topology.world_size == 1 else " split" if topology.split_batch else " nosplit"
    device = "" if effective.device.kind is not DeviceKind.shared_gpu else " shared_gpu"
    engine, pixels = effective.engine.name.name, effective.height
    return f"{effective.preset.name} {topology.world_size}gpu{split} {engine}{device} {pixels}"


def figures(folder: RunFolder) -> dict[str, Any]:
    """What a run cost: image latency, and by kind of step rank 0's mean time and the mean traffic of a rank."""
    by_kind = defaultdict(list)
    for row in folder.read_steps():
        by_kind[row.kind].append(row)
    kinds = {
        kind: {
            "ms": round(fmean(row.ms for row in rows if row.rank == 0), 3),
            "bytes": round(fmean(row.bytes_sent for row in rows)),
            "collectives": round(fmean(row.collectives for row in rows), 1),
        }
        for kind, rows in by_kind.items()
    }
    image = folder.metrics.get("latency/image_s", {})
    return {
        "image_s": image.get("value"),
        "samples": image.get("samples"),
        "peak_memory_mib": folder.record["peak_memory_mib"],
        "kinds": kinds,
        "folder": folder.path.name,
    }
