"""A grid of finished runs that nobody made: records, steps of every rank, pictures and scores, of any size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from otil_exp.config import MetricsConfig
from otil_exp.metrics.picture import PictureScores, Scorers
from otil_exp.metrics.registry import SEAMS_PAIRED
from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.summary import summarise
from otil_exp.run.cost import cost_metrics
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow

STEPS, SIDE, DIFFERENT = 50, 1024, 8

EIGHT = (
    ("reference", 1, 0),
    *((method, ranks, 0) for ranks in (2, 4, 8) for method in ("distrifusion", "naive_patch")),
    ("otil", 4, 32),
)
"""Method, ranks and k of the first cells; more are otil with other k."""


def make(grid: Path, cells: int, pictures: int) -> None:
    """The cells that are not there yet; one that was half made is made anew."""
    more = [("otil", 4, k) for k in range(33, 33 + max(0, cells - len(EIGHT)))]
    for number, (method, ranks, k) in enumerate([*EIGHT, *more][:cells]):
        folder = RunFolder(grid / f"{number:02d}{method}")
        if folder.finished:
            continue
        shutil.rmtree(folder.path, ignore_errors=True)
        _pictures(folder, number, pictures, like=grid / "07otil" / "images" if number >= len(EIGHT) else None)
        drawn = write_steps(folder, ranks, pictures)
        _said(folder, method, ranks, k, pictures)
        if method != "reference":
            folder.update_metrics(_scores(ranks, pictures))
        folder.update_metrics(cost_metrics(drawn, warm=False))
        folder.finish(ended="2026-01-01T00:00:00+00:00")
        print(folder.path, flush=True)


def _pictures(folder: RunFolder, number: int, pictures: int, like: Path | None) -> None:
    """Draw those that differ, and link the others; like: the folder of a cell that has the same ones."""
    folder.images.mkdir(parents=True)
    for index in range(pictures):
        path = folder.image_path(index)
        if like is None and index < DIFFERENT:
            Image.fromarray(picture_of(index, number)).save(path, compress_level=1)
        else:
            os.link((like or folder.images) / f"{index % DIFFERENT:02d}.png", path)


def picture_of(index: int, cell: int) -> np.ndarray:
    """Blots with a little noise, as large as a photo when saved; the same ones in every cell but for the noise."""
    blots = np.random.default_rng(index).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(blots).resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float64)
    noise = np.random.default_rng([index, cell]).normal(0, 2 + cell / 2, smooth.shape)
    return (smooth + noise).clip(0, 255).astype(np.uint8)


def rows_of(ranks: int, prompt: int) -> list[StepRow]:
    kinds = ["warmup"] * 5 + ["steady"] * (STEPS - 5)
    times = np.random.default_rng(prompt).uniform(20, 40, (ranks, STEPS))
    return [
        StepRow(rank, prompt, step, kinds[step], float(times[rank, step]), 432_000_000, 4)
        for rank in range(ranks)
        for step in range(STEPS)
    ]


def write_steps(folder: RunFolder, ranks: int, pictures: int) -> list[StepRow]:
    """Write the steps of all pictures: those that are drawn, which are returned, stand there again for the others."""
    drawn = [rows_of(ranks, prompt) for prompt in range(DIFFERENT)]
    texts = ["".join(f"{r.rank},@,{r.step},{r.kind},{r.ms:.4f},{r.bytes_sent},4,0\n" for r in rows) for rows in drawn]
    folder.write_steps([])
    with (folder.path / "steps.csv").open("a", encoding="utf-8") as file:
        file.writelines(texts[prompt % DIFFERENT].replace("@", str(prompt)) for prompt in range(pictures))
    return [row for rows in drawn for row in rows]


def _said(folder: RunFolder, method: str, ranks: int, k: int, pictures: int) -> None:
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
        effective={"k": k or None, "refresh_period": 0, "warmup_steps": 4, "preset": {}},
        topology={"name": f"{ranks}gpu_nosplit", "world_size": ranks, "split_batch": False},
        seams={"rows": list(_boundaries(ranks).rows), "columns": []},
        device="cuda",
        times_meaningless=None,
        prompts=[{"index": i, "text": f"a caption of a picture, number {i}", "seed": i} for i in range(pictures)],
        started="2026-01-01T00:00:00+00:00",
        host="node",
        cpu={"model": "C", "cores": 8},
        gpus=["G"] * ranks,
        versions={"torch": "2.11.0"},
        attempts=[{"started": "", "ended": None, "prompts": list(range(pictures)), "host": "node"}],
    )


def _boundaries(ranks: int) -> Boundaries:
    return Boundaries(rows=tuple(SIDE * i // ranks for i in range(1, ranks)), columns=())


def _scores(ranks: int, pictures: int) -> dict[str, Any]:
    """As a scored run has them: three scores of a picture, and those of every boundary."""
    rng, seams = np.random.default_rng(ranks), [metric.key for metric in SEAMS_PAIRED]
    means = {"ref/psnr": 25.0, "ref/lpips_alex": 0.2, "ref/ssim": 0.8}
    scores = [
        PictureScores(
            index,
            compared=True,
            paired={key: float(rng.normal(mean, mean / 10)) for key, mean in means.items()},
            seams={key: rng.normal(1.0, 0.1, ranks - 1).tolist() for key in seams},
        )
        for index in range(pictures)
    ]
    nothing_loaded = Scorers(MetricsConfig(), {}, [], None)
    return summarise(nothing_loaded, scores, _boundaries(ranks), None)
