"""How a grid of 5,000 pictures a cell behaves: what is read, scored and reported, in seconds and peak memory.

    python -m benchmarks.scale make FOLDER        eight finished cells: records, steps of every rank, pictures, scores
    python -m benchmarks.scale resume FOLDER      what a resumed run reads and writes before its first picture
    python -m benchmarks.scale score FOLDER N     N pictures are scored, then killed; then the rest of N more is scored
    python -m benchmarks.scale report FOLDER      the page of all cells

Pictures are 32 different ones of 1024 x 1024 a cell, linked under 5,000 names, so that they take little disk. Times of
steps are drawn at random. Each command is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from otil_exp.config import MetricsConfig
from otil_exp.run.attempts import begin_pictures
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.record import read_record

PICTURES, STEPS, SIDE, DIFFERENT = 5000, 50, 1024, 32

CELLS = (
    ("reference", 1),
    *((method, ranks) for method in ("naive_patch", "distrifusion") for ranks in (2, 4, 8)),
    ("otil", 4),
)
"""Method and ranks of the eight cells."""

SCORES = MetricsConfig(psnr=True, ssim=True, perceptual="effnet_lite0_5stage", seams=True, extractors=["effnet_lite0"])


def make(grid: Path) -> None:
    for number, (method, ranks) in enumerate(CELLS):
        folder = RunFolder(grid / f"{number}{method}")
        _pictures(folder, number)
        _steps(folder, ranks)
        _said(folder, method, ranks)
        folder.finish(ended="2026-01-01T00:00:00+00:00")
        print(folder.path, flush=True)


def _pictures(folder: RunFolder, number: int) -> None:
    folder.images.mkdir(parents=True)
    for index in range(PICTURES):
        path = folder.image_path(index)
        if index < DIFFERENT:
            Image.fromarray(_picture(index, number)).save(path)
        else:
            os.link(folder.image_path(index % DIFFERENT), path)


def _picture(index: int, cell: int) -> np.ndarray:
    """Blots with a little noise, as large as a photo when saved; the same ones in every cell but for the noise."""
    blots = np.random.default_rng(index).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(blots).resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float64)
    noise = np.random.default_rng([index, cell]).normal(0, 2 + cell / 2, smooth.shape)
    return (smooth + noise).clip(0, 255).astype(np.uint8)


def _steps(folder: RunFolder, ranks: int) -> None:
    kinds = ["warmup"] * 5 + ["steady"] * (STEPS - 5)
    rng = np.random.default_rng(0)
    folder.write_steps([])
    with (folder.path / "steps.csv").open("a", encoding="utf-8") as file:
        for prompt in range(PICTURES):
            times = rng.uniform(20, 40, (ranks, STEPS))
            file.writelines(
                f"{rank},{prompt},{step},{kinds[step]},{times[rank, step]:.4f},432000000,4,0\n"
                for rank in range(ranks)
                for step in range(STEPS)
            )


def _said(folder: RunFolder, method: str, ranks: int) -> None:
    config: dict[str, Any] = {"name": "scale", "height": SIDE, "width": SIDE, "num_inference_steps": STEPS}
    config |= {"guidance_scale": 5.0, "scheduler": "ddim", "groupnorm": "upstream", "mode": "generate"}
    config |= {"model": {"name": "sdxl", "architecture": "sdxl", "source": "x", "dtype": "float16"}}
    folder.write_config(config | {"engine": {"name": "eager"}})
    folder.update_record(
        status="running",
        signature=folder.path.name,
        picture_key="k",
        method=method,
        is_reference=method == "reference",
        effective={"k": None, "refresh_period": 0, "warmup_steps": 4, "preset": {}},
        topology={"name": f"{ranks}gpu_nosplit", "world_size": ranks, "split_batch": False},
        seams={"rows": [SIDE * i // ranks for i in range(1, ranks)] if ranks > 1 else [], "columns": []},
        device="cuda",
        times_meaningless=None,
        prompts=[{"index": i, "text": f"a caption of a picture, number {i}", "seed": i} for i in range(PICTURES)],
        started="2026-01-01T00:00:00+00:00",
        host="node",
        cpu={"model": "C", "cores": 8},
        gpus=["G"] * ranks,
        versions={"torch": "2.11.0"},
        attempts=[{"started": "", "ended": None, "prompts": list(range(PICTURES)), "host": "node"}],
    )
    rng = np.random.default_rng(1)
    values = {"ref/psnr": 25.0, "ref/lpips_alex": 0.2, "ref/ssim": 0.8}
    metrics: dict[str, Any] = {"latency/step_ms": {"value": 30.0, "unit": "ms", "n": 1000}}
    for key, value in values.items() if ranks > 1 else ():
        each = rng.normal(value, value / 10, PICTURES)
        per_image = {f"{i:02d}": float(one) for i, one in enumerate(each)}
        spread = float(each.std() / PICTURES**0.5)
        entry = {"value": float(each.mean()), "unit": "1", "n": PICTURES, "standard_error": spread}
        metrics[key] = entry | {"per_image": per_image}
    folder.update_metrics(metrics)


def resume(grid: Path) -> None:
    """What `generate` does before its first picture: rows of finished pictures are kept, the others dropped."""
    from otil_exp.run.generation import made_pictures

    folder = RunFolder(grid / "6distrifusion")
    record = read_record(folder.path / "record.json")
    folder.update_record(status="running")
    with _measured(f"resume {PICTURES} pictures, {record['topology']['world_size']} ranks"):
        made = made_pictures(folder, STEPS * record["topology"]["world_size"])
        begin_pictures(folder, made)
    assert len(made) == PICTURES
    folder.finish(ended="2026-01-01T00:00:00+00:00")


def score(grid: Path, pictures: int) -> None:
    """Score, be interrupted, and score again."""
    from otil_exp.run.scores import Share, score_run

    folder = RunFolder(grid / "4distrifusion")
    record = folder.record
    folder.update_record(prompts=record["prompts"][: 2 * pictures])
    seen = 0

    def stop() -> None:
        nonlocal seen
        seen += 1
        if seen == pictures:
            raise KeyboardInterrupt

    try:
        with _measured(f"score {pictures} pictures"), suppress(KeyboardInterrupt):
            score_run(folder, SCORES, Share.all(), on_picture=stop)
        again = 0

        def count() -> None:
            nonlocal again
            again += 1

        with _measured(f"score {pictures} more after an interruption"):
            score_run(folder, SCORES, Share.all(), on_picture=count)
        print(f"scored again: {again - pictures} of {pictures}")
    finally:
        folder.update_record(prompts=record["prompts"])


def report(grid: Path) -> None:
    from otil_exp.report.command import main

    with _measured("report of 8 cells"):
        main([str(grid), "--published"])


class _measured:
    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{self.what}: {time.perf_counter() - self.start:.1f} s, peak {peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    command, where, *more = sys.argv[1:]
    {"make": make, "resume": resume, "score": score, "report": report}[command](Path(where), *map(int, more))
