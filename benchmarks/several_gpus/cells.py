"""Cells of a grid on ranks that stay: one start of the processes for all cells of a topology."""

from __future__ import annotations

from hydra import compose, initialize_config_dir

from benchmarks.several_gpus.plan import Plan
from otil_exp.cells.prepare import prepare
from otil_exp.choices import DeviceKind, GnSync
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.job import Job
from otil_exp.methods.geometry import topology_of
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.run_folder.cell import Cell
from otil_exp.schema import register_schema

TIMEOUT_S = 60.0


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
