"""A run folder made by hand, as two ranks of `balanced` over two prompts would leave it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from composing import composed_of
from otil_exp.cells.prepare import prepare
from otil_exp.metrics.summary import entry
from otil_exp.run.execution import _begin
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.steps import StepRow
from otil_exp.tracking import tracked

KINDS = ("warmup", "steady", "final")


def begun(root: Path, *overrides: str) -> Cell:
    """A cell whose record says running."""
    small = ("device=cpu", "topology=2gpu_nosplit", "num_inference_steps=3", "warmup_steps=0", "prompts.limit=2")
    cell = prepare(composed_of("preset=balanced", *small, "name=t", f"output_dir={root}", *overrides))
    _begin(cell.folder, cell.effective, cell.composed, cell.prompts)
    return cell


def rows_of(prompt: int) -> list[StepRow]:
    """Rank 1 is slower by 1 ms and sends 10 bytes more."""
    return [
        StepRow(rank, prompt, step, kind, 100.0 * prompt + 10 * step + rank, 1000 * step + 10 * rank, step)
        for rank in (0, 1)
        for step, kind in enumerate(KINDS)
    ]


def write_picture(cell: Cell, prompt: int) -> None:
    pixels = np.random.default_rng(prompt).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    cell.folder.write_image(prompt, Image.fromarray(pixels))


def fail_after_the_first_picture(cell: Cell) -> None:
    """A job that tracks one picture and ends with an error."""
    with pytest.raises(RuntimeError), tracked(cell.effective, cell.folder, is_main=True) as tracker:
        write_picture(cell, 0)
        tracker.steps(rows_of(0))
        tracker.picture(cell.prompts[0])
        raise RuntimeError("lost the connection")
    time.sleep(1.1)  # wandb names its folders by the second


def write_results(cell: Cell) -> None:
    cell.folder.write_steps(rows_of(0) + rows_of(1))
    cell.folder.update_record(engine_runs_as="eager")
    cell.folder.update_metrics(
        {
            "latency/step_ms": entry("latency/step_ms", 110.5, 4),
            "ref/psnr": entry("ref/psnr", None, 0, missing="no reference"),
            "seam/step_z": entry("seam/step_z", 2.0, 2, per_image={"00": [1.0, 3.0], "01": [2.0]}),
        }
    )
