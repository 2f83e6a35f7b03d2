"""Score a finished run's pictures: shared out by picture, summed up in prompt order, whoever scored them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from otil_exp.choices import Mode
from otil_exp.config import MetricsConfig
from otil_exp.metrics.extractors import Extractor
from otil_exp.metrics.feature_cache import keep_features, kept_features
from otil_exp.metrics.ground_truth import FolderPictures, ScenePictures, ground_truth
from otil_exp.metrics.metric import GROUND_TRUTH, REFERENCE
from otil_exp.metrics.picture import PictureScores, Scorers, score_picture
from otil_exp.metrics.registry import lookup
from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.summary import Truth, summarise
from otil_exp.run.cost import cost_metrics, memory_metrics, stage_metrics
from otil_exp.run.kept_scores import KeptScores
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

    agree: Callable[[Callable[[], Any]], Any]
    """What rank 0 makes, on all: on a shared file system the others may still see an older folder."""

    @classmethod
    def all(cls) -> Share:
        """One process does it all."""
        return cls(0, 1, lambda value: [value], lambda make: make())

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

    Scores against another reference or ground truth go; others that were not asked for this time stay.

    Every process of `share` calls it; rank 0 writes. references: those of the grid, where several runs are scored.
    Results are equal to the last bit for every way of sharing.
    Raises FileNotFoundError or ValueError, with what to fetch or type, for models or ground truth that are missing.
    """
    task: _Task = share.agree(lambda: _Task.of(folder, settings, references))
    folder.check_images([prompt["index"] for prompt in share.of(task.record["prompts"])])
    scorers = Scorers.load(settings, device)
    kept = KeptScores(folder, scorers, task.basis, device)
    scores = _of_pictures(folder, task, scorers, kept, share, on_picture)
    truth = _truth(scorers, share, task)
    if share.rank == 0:
        no_reference = None if folder.is_reference else MISSING
        made = summarise(scorers, scores, _boundaries(task.record), truth, no_reference)
        made |= cost_metrics(folder.read_steps(), warm=False, attempts=task.record.get("attempts", ()))
        made |= memory_metrics(task.record) | stage_metrics(task.record)
        folder.update_metrics(made, without=_outlived(folder, made, task.basis))
        folder.update_record(scored_with=task.basis)
        kept.drop()


def _of_pictures(
    folder: RunFolder,
    task: _Task,
    scorers: Scorers,
    kept: KeptScores,
    share: Share,
    on_picture: Callable[[], None],
) -> list[PictureScores]:
    """The scores of all pictures in prompt order on rank 0; an earlier scoring that was interrupted is gone on with."""
    prompts, boundaries = task.record["prompts"], _boundaries(task.record)
    beside = None if task.reference is None else RunFolder(task.reference)
    known = kept.read(beside) if share.rank == 0 else {}
    done: set[int] = share.agree(lambda: set(known))
    own = []
    with kept.keeping(share.rank, beside) as keeper:
        for prompt in share.of([prompt for prompt in prompts if prompt["index"] not in done]):
            index = prompt["index"]
            reference = None if beside is None else beside.image_path(index)
            own.append(score_picture(scorers, index, prompt["text"], folder.image_path(index), reference, boundaries))
            keeper.keep(own[-1])
            on_picture()
    found = known | {scores.prompt: scores for scores in share.collect(own)}
    return [found[prompt["index"]] for prompt in prompts] if share.rank == 0 else []


def is_scored(folder: RunFolder, settings: MetricsConfig, references: References | None = None) -> bool:
    """Whether a run has the asked scores, against the reference run and the ground truth that are there now.

    references: asked for the cells of a grid, so that its folder is read once.
    """
    if not (folder.path / "metrics.json").exists():
        return False
    return bool(folder.record.get("scored_with") == _Task.of(folder, settings, references).basis)


def settled(cell: Cell, references: References | None = None) -> bool:
    """Whether a cell is finished, and has the scores that are asked for now; one with a broken file is not."""
    try:
        if not cell.made:
            return False
        generates = cell.effective.mode is Mode.generate
        return not generates or is_scored(cell.folder, cell.effective.metrics, references)
    except BrokenFolderError:
        return False


@dataclass(frozen=True)
class _Task:
    """What is scored against what, as one process sees it."""

    record: dict[str, Any]
    config: dict[str, Any]
    reference: Path | None
    basis: dict[str, Any]
    """What the scores depend on besides the pictures, for record.json: settings that are no defaults, reference run and
    ground truth."""

    @classmethod
    def of(cls, folder: RunFolder, settings: MetricsConfig, references: References | None = None) -> _Task:
        record, config, reference = folder.record, folder.config, (references or References()).of(folder)
        default = asdict(MetricsConfig())
        basis = {name: value for name, value in asdict(settings).items() if value != default[name]}
        basis[REFERENCE] = reference and [reference.path.name, reference.record.get("ended")]
        pictures = _ground_truth(settings, record, config)
        basis[GROUND_TRUTH] = pictures and pictures.identity
        return cls(record, config, None if reference is None else reference.path, basis)


def _outlived(folder: RunFolder, made: dict[str, Any], basis: dict[str, Any]) -> list[str]:
    """Keys of earlier scorings whose reference or ground truth is another one now, or gone."""
    before = folder.record.get("scored_with") or {}
    changed = {what for what in (REFERENCE, GROUND_TRUTH) if before.get(what) != basis[what]}
    return [key for key in folder.metrics if key not in made and changed & set(lookup(key).needs)]


def _ground_truth(
    settings: MetricsConfig, record: dict[str, Any], config: dict[str, Any]
) -> FolderPictures | ScenePictures | None:
    if settings.ground_truth is None or not settings.extractors:
        return None
    captions = [prompt["text"] for prompt in record["prompts"]]
    return ground_truth(settings.ground_truth, captions, config["height"], config["width"])


def _boundaries(record: dict[str, Any]) -> Boundaries:
    """Where this run's slices meet, in pixels."""
    return Boundaries(rows=tuple(record["seams"]["rows"]), columns=tuple(record["seams"]["columns"]))


def _truth(scorers: Scorers, share: Share, task: _Task) -> Truth | None:
    """Features of the ground truth by extractor, complete on rank 0."""
    pictures = _ground_truth(scorers.settings, task.record, task.config)
    if pictures is None:
        return None
    features = {extractor.name: _features(extractor, pictures, share) for extractor in scorers.extractors}
    return Truth(task.basis[GROUND_TRUTH], features, pictures.paired)


def _features(extractor: Extractor, pictures: FolderPictures | ScenePictures, share: Share) -> np.ndarray:
    """(n, size) on rank 0; those of a folder from an earlier run, where one has kept them."""
    if not isinstance(pictures, FolderPictures):
        return _extract(extractor, pictures, share)
    if extractor.own_size:
        pictures = FolderPictures(pictures.folder)
    kept = kept_features(pictures, extractor) if share.rank == 0 else None
    if share.agree(lambda: kept is not None):
        return kept if kept is not None else np.zeros((0, extractor.size))
    made = _extract(extractor, pictures, share)
    if share.rank == 0:
        keep_features(pictures, extractor, made)
    return made


def _extract(extractor: Extractor, pictures: Sequence[torch.Tensor], share: Share) -> np.ndarray:
    rows = share.collect([extractor([pictures[i]]) for i in share.of(range(len(pictures)))])
    return np.concatenate([np.zeros((0, extractor.size)), *rows])
