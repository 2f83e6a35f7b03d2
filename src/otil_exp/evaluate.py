"""`otil-exp-evaluate`: score finished runs again, without the model that made them."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import cache
from itertools import cycle
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.progress import Progress

from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig, MetricsConfig
from otil_exp.metrics.checks import check_ground_truth, check_metrics, check_weights
from otil_exp.phases import lasting
from otil_exp.report.table import summary
from otil_exp.run.scores import Share, score_run
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.lock import BusyError
from otil_exp.run_folder.reference import References
from otil_exp.run_folder.snapshot import Snapshot
from otil_exp.run_folder.whole import BrokenFolderError
from otil_exp.schema import register_schema
from otil_exp.terminal import console as as_typed
from otil_exp.terminal import for_a_reader
from otil_exp.tracking import rescored

EXAMPLES = """examples:
  otil-exp-evaluate outputs/demo                              every finished run below, metrics=pairwise
  otil-exp-evaluate outputs/demo metrics=shapes --jobs 2      all that ships, two runs at a time
  otil-exp-evaluate outputs/sweep metrics=paper metrics.ground_truth=coco/val2017"""


@for_a_reader()
def main(argv: list[str] | None = None) -> int:
    """Entry point of `otil-exp-evaluate`; returns the exit code."""
    parser = argparse.ArgumentParser(
        "otil-exp-evaluate", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arguments", nargs="+", metavar="FOLDER | metrics[.key]=value", help="runs or grids; settings")
    parser.add_argument("--jobs", type=int, help="runs scored at a time (default: cores, or 2 a GPU)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: GPUs if there are any"
    )
    parsed = parser.parse_args(argv)
    console, errors = as_typed(), as_typed(stderr=True)
    try:
        devices = devices_of(parsed.device)
        settings = metrics_of([argument for argument in parsed.arguments if _is_setting(argument)])
        folders = run_folders([Path(argument) for argument in parsed.arguments if not _is_setting(argument)])
    except (ValueError, FileNotFoundError, HydraException, OmegaConfBaseException) as error:
        errors.print(str(error))
        return 1
    jobs = parsed.jobs or (2 * len(devices) if devices[0] != "cpu" else os.cpu_count() or 1)
    failures = score_all(folders, settings, max(1, jobs), devices, console)
    console.print(summary(folders), soft_wrap=False)
    for failure in failures:
        errors.print(failure)
    return 1 if failures else 0


def _is_setting(argument: str) -> bool:
    """metrics=shapes, but not the folder outputs/a=b."""
    return "=" in argument and not Path(argument).exists()


def metrics_of(overrides: list[str]) -> MetricsConfig:
    """The metrics group as Hydra composes it with these overrides. Raises ValueError for other groups' settings."""
    strangers = [override for override in overrides if not override.startswith(("metrics=", "metrics."))]
    if strangers:
        raise ValueError(
            f"{strangers[0]}: only metrics can be chosen again, such as metrics=shapes or metrics.seams=true"
        )
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        composed = compose("config", overrides)
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ExperimentConfig), composed))
    assert isinstance(config, ExperimentConfig)
    check_metrics(config.metrics)
    check_weights(config.metrics)
    check_ground_truth(config.metrics)
    return config.metrics


def devices_of(wanted: str) -> list[str]:
    """Devices to score on: the GPUs of this machine, or the CPU. Raises ValueError for cuda where there is none."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if wanted != "cpu" else []
    if wanted == "cuda" and not gpus:
        raise ValueError("--device=cuda: there is no GPU here; use --device=cpu, or leave it out")
    return gpus or ["cpu"]


def run_folders(paths: list[Path]) -> list[RunFolder]:
    """The finished runs that made pictures at these paths or right below them, references first.

    Those with a broken file are among them, to be named. Raises ValueError when no other is left.
    """
    candidates = [
        RunFolder(p) for path in paths for p in (path, *sorted(path.glob("*"))) if (p / "record.json").exists()
    ]
    found = [
        folder for folder in map(Snapshot, candidates) if folder.broken or (folder.finished and folder.images.exists())
    ]
    if not any(folder.finished for folder in found):
        looked = ", ".join(map(str, paths)) or "nothing"
        raise ValueError(f"no finished run with pictures in {looked}: name outputs/NAME or outputs/NAME/SIGNATURE")
    return [RunFolder(folder.path) for folder in sorted(found, key=lambda folder: not folder.is_reference)]


def score_all(
    folders: list[RunFolder], settings: MetricsConfig, jobs: int, devices: Sequence[str], console: Console
) -> list[str]:
    """Score runs in processes of their own, several at a time, over the devices in turn; failures, one line each.

    With a folder of ground truth the first run is scored alone: its features are then there for the others.
    """
    failures: list[str] = []
    first = 1 if settings.ground_truth not in (None, "renders") else 0
    with (
        ProcessPoolExecutor(min(jobs, len(folders)), mp_context=multiprocessing.get_context("spawn")) as pool,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        nullcontext() if console.is_terminal else lasting(f"scoring {len(folders)} runs", console.print, console),
    ):
        task = progress.add_task("runs", total=len(folders))
        for part in (folders[:first], folders[first:]):
            futures: dict[Future[None], RunFolder] = {
                pool.submit(_score, folder.path, settings, device): folder
                for folder, device in zip(part, cycle(devices), strict=False)
            }
            for future in as_completed(futures):
                error = future.exception()
                if error is not None:
                    named = isinstance(error, BrokenFolderError | BusyError)
                    failures.append(str(error) if named else f"{futures[future].path}: {type(error).__name__}: {error}")
                progress.advance(task)
    return failures


def _score(path: Path, settings: MetricsConfig, device: str) -> None:
    folder = RunFolder(path)
    with folder.locked():
        score_run(folder, settings, Share.all(), device, references=_references())
        rescored(folder)


@cache
def _references() -> References:
    """Of all runs that this process scores: their grids are read once."""
    return References()


if __name__ == "__main__":
    sys.exit(main())
