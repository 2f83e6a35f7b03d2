"""How a grid of 5,000 pictures a cell behaves: what is read, scored, reported and tracked, in seconds and memory.

    python -m benchmarks.scale all FOLDER         make, resume, score and report, one after the other
    python -m benchmarks.scale make FOLDER        finished cells: records, steps of every rank, pictures, scores
    python -m benchmarks.scale resume FOLDER      what a resumed run reads and writes before its first picture and after
    python -m benchmarks.scale score FOLDER       --scored 8 pictures, the others having been scored; interrupted once
    python -m benchmarks.scale report FOLDER      the page of all cells; --form markdown, csv, latex or table instead
    python -m benchmarks.scale track FOLDER       a run of all pictures logged by wandb, offline

--cells 8 and --pictures 5000 if nothing is said. Pictures are 8 different ones of 1024 x 1024 a cell, linked under all
names, so that they take little disk (cells after the eighth have its pictures); times of steps are drawn for those 8.
Each command is a process of its own, so that its peak memory is its own. Seconds are of the wall, and beside them of
the CPU, of all its cores together.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image

from benchmarks.scale_grid import EIGHT, STEPS, make, picture_of, rows_of, write_steps
from otil_exp.config import MetricsConfig
from otil_exp.metrics.picture import PictureScores, Scorers
from otil_exp.metrics.registry import SEAMS_ALONE, SEAMS_PAIRED
from otil_exp.prompts import Prompt
from otil_exp.run.attempts import begin_pictures
from otil_exp.run_folder.folder import RunFolder

SCORES = MetricsConfig(psnr=True, ssim=True, perceptual="effnet_lite0_5stage", seams=True, extractors=["effnet_lite0"])


def resume(grid: Path) -> None:
    """What `generate` does before its first picture, and what it writes between two: early and late in a run."""
    from otil_exp.run.generation import made_pictures

    folder = _of(grid, "distrifusion", most=True)
    pictures, ranks = len(folder.record["prompts"]), folder.record["topology"]["world_size"]
    folder.update_record(status="running")
    with _measured(f"resume {pictures} pictures, {ranks} ranks"):
        made = made_pictures(folder, STEPS * ranks)
        begin_pictures(folder, made)
    assert len(made) == pictures
    folder.finish(ended="2026-01-01T00:00:00+00:00")
    with _beside(folder) as copy:
        for already in (pictures // 50, pictures - pictures // 50):
            write_steps(copy, ranks, already)
            seconds = [_kept(copy, ranks, already + more) for more in range(min(50, pictures // 50))]
            print(f"picture {already} and on, kept with its rows: median {1e3 * float(np.median(seconds)):.0f} ms")


def _kept(folder: RunFolder, ranks: int, prompt: int) -> float:
    """Seconds that a run spends on its files when a picture is made."""
    rows, picture = rows_of(ranks, prompt), Image.fromarray(picture_of(0, 0))
    start = time.perf_counter()
    folder.append_steps(rows)
    folder.write_image(prompt, picture)
    return time.perf_counter() - start


@contextmanager
def _beside(folder: RunFolder) -> Iterator[RunFolder]:
    """A new folder beside a run's; gone at the end."""
    path = folder.path.with_name("beside")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield RunFolder(path)
    finally:
        shutil.rmtree(path)


def score(grid: Path, really: int) -> None:
    """Score a run of which an earlier process, interrupted, has scored all but the last pictures; with an interruption
    at half of those."""
    from otil_exp.run import scores

    folder = _of(grid, "distrifusion", most=False)
    ranks, pictures = folder.record["topology"]["world_size"], len(folder.record["prompts"])
    rng, seen = np.random.default_rng(0), 0

    def made_up(scorers: Scorers, index: int, *_: object) -> PictureScores:
        features = {one.name: rng.normal(size=(2, 1, one.size)) for one in scorers.extractors}
        return PictureScores(
            index,
            compared=True,
            paired={key: float(rng.normal(20, 1)) for key in scorers.paired},
            seams={one.key: rng.normal(1.0, 0.1, ranks - 1).tolist() for one in (*SEAMS_ALONE, *SEAMS_PAIRED)},
            features={name: own for name, (own, _) in features.items()},
            reference_features={name: other for name, (_, other) in features.items()},
        )

    def count(stop: int) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            raise KeyboardInterrupt

    with patch.object(scores, "score_picture", made_up), suppress(KeyboardInterrupt):
        scores.score_run(folder, SCORES, scores.Share.all(), on_picture=partial(count, pictures - really))
    half = really // 2
    with _measured(f"score {half} of {pictures}, interrupted"), suppress(KeyboardInterrupt):
        scores.score_run(folder, SCORES, scores.Share.all(), on_picture=partial(count, pictures - really + half))
    with _measured(f"score the last {really - half}, sum all {pictures} up"):
        scores.score_run(folder, SCORES, scores.Share.all(), on_picture=partial(count, 0))
    print(f"{seen} pictures scored for {pictures}: {seen - pictures} twice", flush=True)
    assert seen == pictures


def report(grid: Path, form: str) -> None:
    from otil_exp.report.command import main

    with _measured(f"report, {form}"):
        output = [] if form == "table" else ["-o", str(grid / ("report.html" if form == "page" else f"report.{form}"))]
        main([str(grid), *output, *({"page": ["--published"]}.get(form) or [f"--{form}"])])
    if output:
        print(f"{output[1]}: {Path(output[1]).stat().st_size / 1e6:.1f} MB", flush=True)


def track(grid: Path) -> None:
    """The log of a whole run, as rank 0 writes it while pictures are made; the pictures are there."""
    from hydra import compose, initialize_config_dir

    from otil_exp.cells.prepare import prepare
    from otil_exp.conf_tree import conf_folder
    from otil_exp.schema import register_schema
    from otil_exp.tracking import tracked

    source = _of(grid, "distrifusion", most=False)
    ranks, prompts = source.record["topology"]["world_size"], source.record["prompts"]
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        overrides = ["preset=distrifusion", f"topology={ranks}gpu_nosplit", "tracker=wandb_offline", "device=cpu"]
        config = prepare(compose("config", [*overrides, f"num_inference_steps={STEPS}"])).effective
    with _beside(source) as folder:
        for name in ("record.json", "config.yaml", "metrics.json", "steps.csv"):
            shutil.copy(source.path / name, folder.path)
        folder.images.mkdir()
        with _measured(f"track {len(prompts)} pictures"), tracked(config, folder, is_main=True) as tracker:
            for prompt in prompts:
                path = folder.image_path(prompt["index"])
                os.link(source.image_path(prompt["index"]), path)
                tracker.steps(rows_of(ranks, prompt["index"]))
                tracker.picture(Prompt(**prompt))
        staged = [file for file in (folder.path / "wandb").rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in staged)
        print(f"staged: {len(staged)} files, {size / 1e6:.1f} MB", flush=True)


def _of(grid: Path, method: str, most: bool) -> RunFolder:
    """The run of a method with most ranks, or with fewest."""
    folders = [RunFolder(path.parent) for path in sorted(grid.glob("*/record.json"))]
    found = [folder for folder in folders if folder.record["method"] == method]
    return max(found, key=lambda folder: folder.record["topology"]["world_size"] * (1 if most else -1))


class _measured:
    """Prints the seconds of a block, of the wall and of the CPU, and the most memory of this process so far."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.start, self.cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        wall, cpu = time.perf_counter() - self.start, time.process_time() - self.cpu
        print(f"{self.what}: {wall:.1f} s, CPU {cpu:.1f} s, peak {peak:.0f} MiB", flush=True)


def everything(grid: Path, *options: str) -> None:
    """Each part in a process of its own."""
    for command in ("make", "resume", "score", "report"):
        subprocess.run([sys.executable, "-m", "benchmarks.scale", command, str(grid), *options], check=True)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("all", "make", "resume", "score", "report", "track"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cells", type=int, default=len(EIGHT))
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--scored", type=int, default=8, help="pictures that are really scored: seconds each, on a CPU")
    parser.add_argument("--form", choices=("page", "markdown", "csv", "latex", "table"), default="page")
    asked = parser.parse_args(argv)
    grid = asked.folder
    commands: dict[str, Callable[[], None]] = {
        "all": lambda: everything(grid, *argv[2:]),
        "make": lambda: make(grid, asked.cells, asked.pictures),
        "resume": lambda: resume(grid),
        "score": lambda: score(grid, asked.scored),
        "report": lambda: report(grid, asked.form),
        "track": lambda: track(grid),
    }
    commands[asked.command]()


if __name__ == "__main__":
    main(sys.argv[1:])
