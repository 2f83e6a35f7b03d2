"""Are the pictures of ranks on GPUs of their own those of ranks that share one (device=shared_gpu)?"""

from __future__ import annotations

import numpy as np
from PIL import Image

from benchmarks.several_gpus.cells import cell, name_of, run_cells, short
from benchmarks.several_gpus.plan import METHODS, Plan, keep
from otil_exp.run_folder.cell import Cell


def compare_pictures(plan: Plan) -> None:
    """Make one picture of each method both ways from the same seed, and compare them value by value."""
    shape = short(plan, 10)
    nosplit, _ = plan.topologies
    own = [cell(plan, method, nosplit, *shape, f"engine={plan.engine}") for method in METHODS]
    called = [cell(plan, method, nosplit, *shape, "engine=eager") for method in ("otil", "distrifusion")]
    emulated = "shared_gpu" if plan.device == "cuda" else "cpu"
    shared = [cell(plan, method, nosplit, *shape, "engine=eager", device=emulated) for method in METHODS]
    run_cells(own)
    run_cells(called)
    run_cells(shared)
    emulations = {one.effective.preset.name: one for one in shared}
    for one in (*own, *called):
        difference = _difference(one, emulations[one.effective.preset.name])
        keep("pictures", f"equal: {name_of(one.effective)}", difference, plan)


def _difference(one: Cell, other: Cell) -> dict[str, float] | str:
    paths = [each.folder.image_path(0) for each in (one, other)]
    if not all(path.exists() for path in paths):
        return "no picture"
    first, second = (np.asarray(Image.open(path), dtype=np.float64) for path in paths)
    apart = np.abs(first - second)
    psnr = float("inf") if not apart.any() else 10 * np.log10(255**2 / np.mean(apart**2))
    return {"largest": float(apart.max()), "share_of_values": float((apart > 0).mean()), "psnr_db": round(psnr, 2)}
