"""Files in the layout of the published ones go through a published experiment: tiny networks, one process, a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launchers.coco_pictures import link

from benchmarks.published_smoke import coco_files, compared, save_as_published, words
from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.report.collect import collect, find_folders
from otil_exp.report.page import render
from otil_exp.run.execution import execute
from tiny_sdxl import tiny_pipeline, tiny_unet


@pytest.fixture
def files(tmp_path: Path) -> Path:
    save_as_published(tiny_pipeline(tiny_unet(), tmp_path / "tokenizer"), tmp_path / "sdxl")
    link(coco_files(tmp_path, 5), tmp_path / "val2014", tmp_path / "ground_truth", limit=5)
    return tmp_path


def test_a_saved_pipeline_and_coco_s_files_become_pictures_scores_and_a_page(composed: Compose, files: Path) -> None:
    assert {path.name for path in (files / "sdxl" / "unet").iterdir()} == {
        "config.json",
        "diffusion_pytorch_model.fp16.safetensors",
    }
    tiny = ("model.architecture=files", "model.dtype=float32", "height=64", "width=64")
    few = ("num_inference_steps=2", "warmup_steps=0", "device=cpu", "preset=reference", "topology=1gpu")
    cell = prepare(composed(*words(files), *tiny, *few))
    execute([cell], hosted=False)
    assert cell.folder.finished
    # By hand: picture i, by ascending id, takes its caption i mod 5, by ascending id of the captions.
    content = json.loads((files / "captions_val2014.json").read_text(encoding="utf-8"))
    own = [
        sorted((one["id"], one["caption"]) for one in content["annotations"] if one["image_id"] == image)
        for image in sorted(image["id"] for image in content["images"])
    ]
    assert [prompt["text"] for prompt in cell.folder.record["prompts"]] == [own[i][i][1].strip() for i in range(4)]
    assert [prompt["seed"] for prompt in cell.folder.record["prompts"]] == [0, 1, 2, 3]
    truth = cell.folder.metrics["frechet_effnet_lite0/gt"]
    assert (truth["n"], truth["n_reference"]) == (4, 5)
    page = render(collect(find_folders([cell.folder.path])), files, 64)
    assert page.count('class="own"') == 4


@pytest.mark.parametrize(("psnr", "far"), [(30.02, 0), (30.05, 1), (None, 1)])
def test_scores_of_two_devices_may_differ_by_rounding(psnr: float | None, far: int) -> None:
    """Of 30 dB a thousandth is 0.03; times are no scores, and what has no value is none."""
    first = {"ref/psnr": {"value": 30.0}, "latency/step_ms": {"value": 1.0}, "kernel_effnet_lite0/gt": {"value": None}}
    lines, found = compared(first, {"ref/psnr": {"value": psnr}})
    assert (len(lines), found) == (1, far)
