"""hydra.launcher.dry_run=true: what a grid would ask of the cluster, and nothing is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

from otil_exp.cells.grid import Member
from otil_exp.run.scores import settled
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.slurm.script import script_of
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Array, arrays_of

Kind = tuple[Any, ...]
"""What a picture's time depends on most: method, topology, engine, device, model, size, steps."""


def describe(members: Sequence[Member], settings: SlurmSettings, output_dir: Path, console: Console) -> None:
    """Say which jobs a checked grid would become, how long they may take, and show the batch scripts."""
    left = [member for member in members if not settled(member.cell)]
    console.print(f"dry run, nothing is submitted: {len(members) - len(left)} of {len(members)} cells are done already")
    known = seconds_a_picture(output_dir)
    ordered = [
        array
        for references in (True, False)
        for array in arrays_of([m for m in left if m.cell.folder.is_reference is references], settings)
    ]
    for array in ordered:
        _describe(array, settings, known, console)
    for array in ordered:
        console.print(f"\nbatch script of {_size(array)}:", style="bold")
        console.print(script_of(array.resources, settings, len(array.packs)), markup=False, highlight=False)


def seconds_a_picture(output_dir: Path) -> dict[Kind, list[float]]:
    """Seconds a picture of every finished run below output_dir, all phases but the start of its ranks, by kind.

    Runs that were interrupted do not count: nobody knows how long they waited.
    """
    found: dict[Kind, list[float]] = {}
    for path in sorted(output_dir.glob("*/*/record.json")):
        try:
            folder = RunFolder(path.parent)
            record = folder.record
            if record.get("status") != "done" or record.get("resumed"):
                continue
            took = datetime.fromisoformat(record["ended"]) - datetime.fromisoformat(record["started"])
            found.setdefault(_kind_of_run(record, folder.config), []).append(
                took.total_seconds() / len(record["prompts"])
            )
        except (ValueError, KeyError, TypeError, OSError, ZeroDivisionError):
            continue  # not whole: otil-report names it
    return found


def _kind_of_run(record: dict[str, Any], config: dict[str, Any]) -> Kind:
    size = config["height"], config["width"], config["num_inference_steps"]
    place = record["topology"]["world_size"], record["topology"]["split_batch"], record["engine"], record["device"]
    return record["method"], *place, config["model"]["name"], *size


def _kind(cell: Cell) -> Kind:
    what = cell.effective
    place = what.topology.world_size, what.topology.split_batch, what.engine.name.name, what.device.kind.name
    return what.preset.name, *place, what.model.name, what.height, what.width, what.num_inference_steps


def _describe(array: Array, settings: SlurmSettings, known: dict[Kind, list[float]], console: Console) -> None:
    resources = array.resources
    cells = [member.cell for pack in array.packs for member in pack]
    gpus = resources.nodes * resources.gpus_per_node
    console.print(
        f"\n{_size(array)}, {len(cells)} cells, each job {resources.nodes} nodes x {resources.tasks_per_node} ranks, "
        f"{gpus or 'no'} GPUs, at most {settings.timeout_min} min",
        style="bold",
    )
    for pack in array.packs:
        for number, member in enumerate(pack):
            console.print(f"{'  ' if number == 0 else '  + '}{member.title}", markup=False, highlight=False)
    told = [cell for cell in cells if _kind(cell) in known]
    hours = sum(mean(known[_kind(cell)]) * _missing(cell) for cell in told) / 3600
    runs = sum(len(known[kind]) for kind in {_kind(cell) for cell in told})
    if told:
        console.print(
            f"  about {hours:.2g} h of jobs, {gpus * hours:.2g} GPU hours, by {runs} earlier runs of the same kind "
            "(starting up not counted)",
            highlight=False,
        )
    if untold := len(cells) - len(told):
        limit = len(array.packs) * settings.timeout_min / 60
        console.print(
            f"  {untold} cells of kinds that have not been run: the jobs take {limit:.2g} h, {gpus * limit:.2g} GPU "
            "hours at most, until their first limit",
            highlight=False,
        )


def _size(array: Array) -> str:
    count = len(array.packs)
    return f"an array of {count} jobs" if count > 1 else "one job"


def _missing(cell: Cell) -> int:
    """Pictures that are still to be made."""
    return len(cell.prompts) - len(list(cell.folder.images.glob("*.png")))
