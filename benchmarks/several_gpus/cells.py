"""Cells of a grid on ranks that stay: one start of the processes for all cells of a topology."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from hydra import compose, initialize_config_dir

from benchmarks.several_gpus.plan import METHODS, Plan, keep, results
from otil_exp.cells.prepare import prepare
from otil_exp.choices import DeviceKind, GnSync
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.job import Job
from otil_exp.methods.geometry import topology_of
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.schema import register_schema

TIMEOUT_S = 60.0


def timed_cells(side: int, plan: Plan) -> None:
    """mode=benchmark of every method on slices of the picture, and of the reference on one GPU."""
    engine = f"engine={plan.engine}"
    run_cells([timed(plan, side, "reference", "1gpu", engine)])
    run_cells([timed(plan, side, method, plan.topologies[0], engine) for method in METHODS])


def split_cells(plan: Plan) -> None:
    """mode=benchmark with the batch in halves, at both sizes."""
    methods = METHODS if plan.world_size > 2 else ("otil",)  # two ranks that split the batch have one slice each
    split, engine = plan.topologies[1], f"engine={plan.engine}"
    run_cells([timed(plan, side, method, split, engine) for side in (1024, 2048) for method in methods])


def eager_cells(plan: Plan) -> None:
    """What CUDA graphs save: two methods without them."""
    run_cells([timed(plan, 1024, method, plan.topologies[0], "engine=eager") for method in ("otil", "distrifusion")])


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


def short(plan: Plan, steps: int) -> tuple[str, ...]:
    """Overrides of a picture of few steps that has steps of every kind."""
    pixels, _ = plan.sizes(1024)
    return (f"height={pixels}", f"width={pixels}", f"num_inference_steps={steps}", "warmup_steps=2", "refresh=every5")


def run_cells(cells: list[Cell]) -> None:
    """Run cells of one topology on one set of ranks; a failed one is recorded in its folder, and the next ones run."""
    failures: dict[str, str] = {}
    Job(say=lambda words: print(words, flush=True)).run(cells, failures)
    print(*failures.values(), sep="\n", flush=True)


def name_of(effective: ExperimentConfig) -> str:
    """Method, topology, engine, device and size of a cell."""
    device = "" if effective.device.kind is not DeviceKind.shared_gpu else " shared_gpu"
    method = _method(effective.preset.name, getattr(effective.preset, "gn_sync", False))
    return f"{method} {topology_of(effective).name} {effective.engine.name.name}{device} {effective.height}"


def _method(name: str, gn_sync: bool | str) -> str:
    return f"{name} gn_sync=fused" if gn_sync_of(gn_sync) is GnSync.fused else name


def keep_timed(plan: Plan) -> None:
    """Keep what every finished cell of mode=benchmark cost, from its run folder."""
    for path in sorted((plan.out / "runs").glob("*/record.json")):
        folder = RunFolder(path.parent)
        if not folder.finished or folder.config["mode"] != "benchmark":
            continue
        part, name = f"cells_{folder.config['height']}", _name(folder)
        if results(plan).get(part, {}).get(name, {}).get("folder") != folder.path.name:
            keep(part, name, figures(folder), plan)


def _name(folder: RunFolder) -> str:
    """`name_of`, from a run folder."""
    record = folder.record
    method = _method(record["method"], record["effective"]["preset"].get("gn_sync", False))
    return f"{method} {record['topology']['name']} {record['engine']} {folder.config['height']}"


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
        "runs_as": folder.record["engine_runs_as"],
        "kinds": kinds,
        "folder": folder.path.name,
    }
