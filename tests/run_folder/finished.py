"""Finished run folders made by hand, all files of them whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow

SIDE = 16


def finished(path: Path, *, reference: bool = False, prompts: int = 2, pictures: bool = True, **more: Any) -> RunFolder:
    """A run of one rank and two steps a picture."""
    folder = RunFolder(path)
    folder.write_config({"name": "t", "height": SIDE, "width": SIDE, "mode": "generate", "model": {"name": "shapes"}})
    folder.update_record(
        signature=path.name,
        picture_key="k",
        method="reference" if reference else "otil",
        is_reference=reference,
        effective={"k": None, "refresh_period": 0},
        topology={"name": "1gpu", "world_size": 1, "split_batch": False},
        seams={"rows": [], "columns": []},
        prompts=[{"index": i, "text": f"prompt {i}", "seed": i} for i in range(prompts)],
        **more,
    )
    rows = [StepRow(0, prompt, step, "steady", 10.0, 11456, 2) for prompt in range(prompts) for step in range(2)]
    folder.write_steps(rows)
    folder.update_metrics({"latency/step_ms": {"value": 10.0, "unit": "ms", "n": 2}})
    if pictures:
        for prompt in range(prompts):
            pixels = np.random.default_rng(prompt).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            folder.write_image(prompt, Image.fromarray(pixels))
    folder.finish()
    return folder
