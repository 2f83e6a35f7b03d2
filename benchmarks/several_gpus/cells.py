"""Cells of a grid on ranks that stay: one start of the processes for all cells of a topology."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from hydra import compose, initialize_config_dir
from plan import METHODS, Plan, keep

from otil_exp.app import conf_folder
from otil_exp.cell import Cell, prepare
from otil_exp.choices import DeviceKind
from otil_exp.config import ExperimentConfig, register_schema
from otil_exp.job import Job
from otil_exp.run.folder import RunFolder

TIMEOUT_S = 60.0


def timed_cells(side: int, plan: Plan) -> None:
    """mode=benchmark of every method on both topologies, and of the reference on one GPU."""
    nosplit, split = plan.topologies
    engine = f"engine={plan.engine}"
    run_cells([timed(plan, side, "reference", "1gpu", engine)])
    run_cells([timed(plan, side, method, nosplit, engine) for method in METHODS])
    methods = METHODS if plan.world_size > 2 else ("otil",)  # two ranks that split the batch have one slice each
    run_cells([timed(plan, side, method, split, engine) for method in methods])
    if side == 1024 and plan.device == "cuda":
        run_cells([timed(plan, side, method, nosplit, "engine=eager") for method in ("otil", "distrifusion")])


def timed(plan: Plan, side: int, method: str, topology: str, *overrides: str) -> Cell:
    """A cell of mode=benchmark."""
    pixels, steps = plan.sizes(side)
    shape = (f"height={pixels}", f"width={pixels}", f"num_inference_steps={steps}", "mode=benchmark")
    often = ("benchmark.warmup_images=1", f"benchmark.repeats={2 if side == 1024 else 1}", "benchmark.drop_extremes=0")
    return cell(plan, method, topology, *shape, *often, *overrides)


def cell(plan: Plan, method: str, topology: str, *overrides: str, device: str | None = None) -> Cell:
    """One composed and checked cell, as `otil-exp` makes it."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        common = (f"model={plan.model}", f"device={device or plan.device}", "prompts.limit=1", "metrics=none")
        where = (f"output_dir={plan.out}", "name=runs", f"launch.collective_timeout_s={TIMEOUT_S}")
        return prepare(compose("config", [f"preset={method}", f"topology={topology}", *common, *where, *overrides]))


def run_cells(cells: list[Cell]) -> None:
    """Run cells of one topology on one set of ranks; a failed one is recorded in its folder, and the next ones run."""
    failures: dict[str, str] = {}
    Job(say=lambda words: print(words, flush=True)).run(cells, failures)
    print(*failures.values(), sep="\n", flush=True)


def name_of(effective: ExperimentConfig) -> str:
    """Method, topology, engine, device and size of a cell."""
    topology = effective.topology
    split = "" if topology.world_size == 1 else " split" if topology.split_batch else " nosplit"
    device = "" if effective.device.kind is not DeviceKind.shared_gpu else " shared_gpu"
    engine, pixels = effective.engine.name.name, effective.height
    return f"{effective.preset.name} {topology.world_size}gpu{split} {engine}{device} {pixels}"


def keep_timed(plan: Plan) -> None:
    """Keep what every finished cell of mode=benchmark cost, from its run folder."""
    for path in sorted((plan.out / "runs").glob("*/record.json")):
        folder = RunFolder(path.parent)
        if folder.finished and folder.config["mode"] == "benchmark":
            keep(f"cells_{folder.config['height']}", _name(folder), figures(folder), plan)


def _name(folder: RunFolder) -> str:
    """`name_of`, from a run folder."""
    record, topology = folder.record, folder.record["topology"]
    split = "" if topology["world_size"] == 1 else " split" if topology["split_batch"] else " nosplit"
    place = f"{topology['world_size']}gpu{split} {record['engine']}"
    return f"{record['method']} {place} {folder.config['height']}"


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
    image = folder.metrics["latency/image_s"]
    return {
        "image_s": image["value"],
        "samples": image["samples"],
        "peak_memory_mib": folder.record["peak_memory_mib"],
        "kinds": kinds,
        "folder": folder.path.name,
    }
