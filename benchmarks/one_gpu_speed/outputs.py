"""How far outputs of compiled steps are from upstream's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.one_gpu_speed.cases import CASES, UPSTREAM


def compare_outputs(results: list[dict[str, Any]], folder: Path) -> None:
    """Add how far a compiled step is from the same step of upstream's layers: ||a - b|| / ||b||."""
    by_case = {result["case"]: result for result in results}
    for case in CASES:
        twins = [replace(case, engine=UPSTREAM, variant="", both=both).name for both in (False, True)]
        twin = next((name for name in twins if name in by_case), None)
        if case.engine == "compiled" and case.name in by_case and twin is not None:
            ours, theirs = (torch.load(folder / f"{name}.pt").float() for name in (case.name, twin))
            by_case[case.name]["off_by"] = float((ours - theirs).norm() / theirs.norm())
