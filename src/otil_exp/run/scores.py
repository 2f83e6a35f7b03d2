"""Score a finished run's pictures: shared out by picture, summed up in prompt order, whoever scored them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from otil_exp.choices import Mode
from otil_exp.config import MetricsConfig
from otil_exp.metrics.ground_truth import FolderPictures, ScenePictures
from otil_exp.metrics.picture import PictureScores, Scorers, score_picture
from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.summary import summarise
from otil_exp.run.cost import cost_metrics
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import MISSING, References
from otil_exp.run_folder.whole import BrokenFolderError

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """Which part of the work this process does, and how it hands it in."""

    rank: int
    world_size: int
    gather: Callable[[Any], list[Any]]
    """Everyone's value, in rank order, on rank 0; an empty list on the others."""

    @classmethod
    def all(cls) -> Share:
        """One process does it all."""
        return cls(0, 1, lambda value: [value])

    def of(self, items: Sequence[T]) -> list[T]:
        """Every world_size-th item, starting with the rank's."""
        return [items[index] for index in range(self.rank, len(items), self.world_size)]

    def collect(self, own: list[T]) -> list[T]:
        """Everyone's results in the order of the items; empty but on rank 0."""
        parts = self.gather(own)
        longest = max((len(part) for part in parts), default=0)
        return [part[i] for i in range(longest) for part in parts if i < len(part)]


def score_run(
    folder: RunFolder,
    settings: MetricsConfig,
    share: Share,
    device: torch.device | str = "cpu",
    on_picture: Callable[[], None] = lambda: None,
    references: References | None = None,
) -> None:
    """Write cost and the asked scores of a run's pictures to metrics.json, replacing those of the same name.

    Every process of `share` calls it; rank 0 writes. references: those of the grid, where several runs are scored.
    Results are equal to the last bit for every way of sharing.
    Raises FileNotFoundError or ValueError, with what to fetch or type, for models or ground truth that are missing.
    """
    record, config = folder.record, folder.config
    reference, boundaries = (references or References()).of(folder), _boundaries(record)
    folder.check_images([prompt["index"] for prompt in share.of(record["prompts"])])
    scorers = Scorers.load(settings, device)
    own = []
    for prompt in share.of(record["prompts"]):
        index = prompt["index"]
        beside = None if reference is None else reference.image_path(index)
        own.append(score_picture(scorers, index, prompt["text"], folder.image_path(index), beside, boundaries))
        on_picture()
    scores = share.collect(own)
    truth = _truth(scorers, share, record, config)
    if share.rank == 0:
        scored = summarise(scorers, scores, boundaries, truth)
        folder.update_record(scored_with=_basis(settings, reference))
        folder.update_metrics(
            cost_metrics(folder.read_steps(), warm=False, attempts=record.get("attempts", ()))
            | scored
            | _what_is_missing(folder, settings, scores)
        )


def is_scored(folder: RunFolder, settings: MetricsConfig, references: References | None = None) -> bool:
    """Whether a run has the asked scores, against the reference run that is there now.

    references: asked for the cells of a grid, so that its folder is read once.
    """
    reference = (references or References()).of(folder)
    return folder.record.get("scored_with") == _basis(settings, reference)


def settled(cell: Cell, references: References | None = None) -> bool:
    """Whether a cell is finished, and has the scores that are asked for now; one with a broken file is not."""
    try:
        if not cell.made:
            return False
        generates = cell.effective.mode is Mode.generate
        return not generates or is_scored(cell.folder, cell.effective.metrics, references)
    except BrokenFolderError:
        return False


def _basis(settings: MetricsConfig, reference: RunFolder | None) -> dict[str, Any]:
    return asdict(settings) | {"reference": reference and reference.path.name}


def _boundaries(record: dict[str, Any]) -> Boundaries:
    """Where this run's slices meet, in pixels."""
    return Boundaries(rows=tuple(record["seams"]["rows"]), columns=tuple(record["seams"]["columns"]))


def _truth(scorers: Scorers, share: Share, record: dict[str, Any], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Features of the ground truth by extractor, complete on rank 0."""
    source, height, width = scorers.settings.ground_truth, config["height"], config["width"]
    if source is None or not scorers.extractors:
        return {}
    captions = [prompt["text"] for prompt in record["prompts"]]
    pictures = ScenePictures(captions, height, width) if source == "renders" else FolderPictures(source, height, width)
    found = {}
    for extractor in scorers.extractors:
        rows = share.collect([extractor([pictures[i]]) for i in share.of(range(len(pictures)))])
        found[extractor.name] = np.concatenate([np.zeros((0, extractor.size)), *rows])
    return found


def _what_is_missing(folder: RunFolder, settings: MetricsConfig, scores: list[PictureScores]) -> dict[str, Any]:
    """An entry that says what to run, where paired scores were asked for and there was no reference."""
    asked = settings.psnr or settings.ssim or settings.perceptual
    if folder.is_reference or not asked or any(score.paired for score in scores):
        return {}
    return {"ref/psnr": {"value": None, "unit": "dB", "model": None, "n": 0, "missing": MISSING}}
