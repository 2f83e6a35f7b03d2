"""A run of a tiny Stable Diffusion as any other: prompts of scenes, pictures, scores, a resumed folder."""

from __future__ import annotations

from pathlib import Path

import tiny_sd
from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.run.execution import execute

SCORES = {"text/shapes_text_image", "frechet_shapes/gt", "kernel_effnet_lite0/gt", "seam/step_z", "latency/step_ms"}


def test_pictures_of_captions_are_made_and_scored(composed: Compose, tmp_path: Path) -> None:
    tiny_sd.tiny_pipeline("sd21").save_pretrained(tmp_path / "sd21")
    few = ("num_inference_steps=2", "height=64", "width=64", "prompts.limit=2", "prompts=shapes", "metrics=shapes")
    words = (*tiny_sd.words("sd21", tmp_path), "preset=reference", "device=cpu", *few, "warmup_steps=0")
    cell = prepare(composed(*words))
    execute([cell], hosted=False)
    assert cell.folder.finished
    assert cell.folder.config["guidance_scale"] == 7.5
    assert sorted(path.name for path in cell.folder.images.iterdir()) == ["00.png", "01.png"]
    assert set(cell.folder.metrics) >= SCORES
    again = prepare(composed(*words)).folder
    assert (again.path, again.finished) == (cell.folder.path, True)
