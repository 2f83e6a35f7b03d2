"""mode=generate: a picture for every prompt that has none yet, then the scores."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import distributed as dist

from otil_exp.phases import Pulse, phase
from otil_exp.pipeline import Generated, RankPipeline
from otil_exp.prompts import Prompt
from otil_exp.run.attempts import begin_pictures, end_pictures
from otil_exp.run.cost import peak_memory_mib
from otil_exp.run.scores import Share, score_run
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.messages import MessageRow
from otil_exp.run_folder.steps import StepRow
from otil_exp.terminal import console
from otil_exp.topology import RankContext, meet
from otil_exp.tracking import Tracker
from otil_exp.traffic import Message

_log = logging.getLogger(__name__)

WORST_LAYERS = 5
"""Layers that a record names of those that cut most values."""


class BadPictureError(RuntimeError):
    """A picture that is constant or not finite: the run failed, whatever its score would be."""


def generate(pipeline: RankPipeline, prompts: list[Prompt], folder: RunFolder, tracker: Tracker) -> None:
    """Make the missing pictures of a run, one after the other; rank 0 writes them and the steps of all ranks.

    Raises BadPictureError on the first picture that is constant or not finite; the finished ones stay.
    """
    missing = _agreed(pipeline.ranks, lambda: _left(pipeline, prompts, folder))
    if missing:  # by the first prompt of all, so that a resumed run has the same scales
        pipeline.calibrate(prompts[0].text, prompts[0].seed)
    with phase("pictures", _counted(len(missing)), live=False), _progress(pipeline, len(missing)) as bar:
        for prompt in missing:
            bar.begin(prompt)
            generated = pipeline(prompt.text, prompt.seed, decode=pipeline.decodes, on_step=bar.step)
            new = gather_rows(pipeline, prompt.index, generated)
            if pipeline.ranks.is_main:
                folder.append_steps(new)
                if prompt is missing[0]:
                    folder.write_messages(messages_of(generated))
                _keep_picture(folder, prompt, generated)
                tracker.steps(new)
                tracker.picture(prompt)
            bar.done()
    note_products(pipeline, folder)
    if pipeline.ranks.is_main:
        end_pictures(folder)
    if missing:
        note_peak_memory(pipeline, folder)
    meet()  # all pictures are written
    with phase("scoring"):
        score_run(folder, pipeline.config.metrics, share_of(pipeline.ranks), pipeline.ranks.device)


def _left(pipeline: RankPipeline, prompts: list[Prompt], folder: RunFolder) -> list[Prompt]:
    """The prompts whose picture, or the rows of its steps, no attempt finished; what rows they have are dropped."""
    made = made_pictures(folder, len(pipeline.steps) * pipeline.ranks.topology.world_size)
    begin_pictures(folder, made)
    return [prompt for prompt in prompts if prompt.index not in made]


def made_pictures(folder: RunFolder, per_picture: int) -> set[int]:
    """Prompts whose picture and all `per_picture` rows of steps.csv are there; what else it has is dropped."""
    steps = folder.read_steps()
    prompts, counts = np.unique(steps.column("prompt"), return_counts=True)
    made = {index for index in prompts[counts == per_picture].tolist() if folder.has_image(index)}
    if len(made) < len(prompts):
        folder.write_steps(steps.where(np.isin(steps.column("prompt"), list(made))))
    return made


def gather_rows(pipeline: RankPipeline, prompt: int, generated: Generated, repeat: int = 0) -> list[StepRow]:
    """The steps of all ranks for one picture, on rank 0; empty on the others. Not counted as traffic of the method."""
    own = [
        StepRow(
            rank=pipeline.ranks.rank,
            prompt=prompt,
            step=trace.step.index,
            kind=trace.step.kind,
            ms=trace.ms,
            bytes_sent=trace.traffic.bytes_sent,
            collectives=trace.traffic.collectives,
            repeat=repeat,
        )
        for trace in generated.steps
    ]
    return [row for rows in _gathered(pipeline.ranks, own) for row in rows]


def note_products(pipeline: RankPipeline, folder: RunFolder) -> None:
    """Where products are in fp8, put into record.json how, and say what all ranks cut. All ranks must call it."""
    own = pipeline.products()
    if own is None:
        return
    by_rank: list[dict[str, Any]] = _gathered(pipeline.ranks, own)
    if not pipeline.ranks.is_main:
        return
    layers = set[str]().union(*(one["layers"] for one in by_rank))  # ranks that cut a UNet by depth have others each
    total = sum((Counter(one["overflow"]) for one in by_rank), Counter[str]())
    worst = dict(total.most_common(WORST_LAYERS))
    said = {"layers": len(layers), "overflow": total.total(), "overflow_worst": worst}
    folder.update_record(products=own | said)
    if total:
        _log.warning(
            "engine.products=fp8: values were cut, since they were larger than %g times the largest one of the "
            "calibration: %d in %d of %d layers, most in %s",
            *(own["margin"], total.total(), len(total), len(layers), next(iter(worst))),
        )


def note_peak_memory(pipeline: RankPipeline, folder: RunFolder) -> None:
    """Put every rank's peak so far into record.json, and the largest: before the models that score pictures are loaded
    beside the run's own. All ranks must call it."""
    by_rank = _gathered(pipeline.ranks, peak_memory_mib(pipeline.ranks.device))
    if pipeline.ranks.is_main:
        largest = None if None in by_rank else max(by_rank)
        folder.update_record(peak_memory_mib=largest, peak_memory_mib_by_rank=by_rank)


def messages_of(generated: Generated) -> list[MessageRow]:
    """What operations a step of every kind had on this rank, for one picture."""
    steps, messages = Counter[str](), dict[str, Counter[Message]]()
    for trace in generated.steps:
        steps[trace.step.kind] += 1
        messages.setdefault(trace.step.kind, Counter()).update(trace.traffic.messages)
    return [
        MessageRow(kind, *message, per_step=count / steps[kind])
        for kind, counted in messages.items()
        for message, count in counted.items()
    ]


def share_of(ranks: RankContext) -> Share:
    """This rank's part of the scoring."""
    gather, agree = partial(_gathered, ranks), partial(_agreed, ranks)
    return Share(ranks.rank, ranks.topology.world_size, gather, agree)


def _gathered(ranks: RankContext, value: Any) -> list[Any]:
    """Every rank's value on rank 0, in rank order; an empty list on the others."""
    if ranks.topology.world_size == 1:
        return [value]
    everyone = [None] * ranks.topology.world_size if ranks.is_main else None
    dist.gather_object(value, everyone)
    return everyone or []


def _agreed(ranks: RankContext, make: Callable[[], Any]) -> Any:
    """What rank 0 makes, for all: on a shared file system the others may still see an older folder."""
    if ranks.topology.world_size == 1:
        return make()
    agreed = [make() if ranks.is_main else None]
    dist.broadcast_object_list(agreed, src=0)
    return agreed[0]


def _keep_picture(folder: RunFolder, prompt: Prompt, generated: Generated) -> None:
    assert generated.image is not None
    fault = _fault(generated)
    picture = Image.fromarray(np.nan_to_num(generated.image * 255).round().clip(0, 255).astype(np.uint8))
    if fault is None:
        folder.write_image(prompt.index, picture)
        return
    path = folder.reject_image(prompt.index, picture)
    raise BadPictureError(f"the picture of prompt {prompt.index:02d} ({prompt.text!r}) {fault}; kept as {path}")


def _fault(generated: Generated) -> str | None:
    """What is wrong with a picture, or None."""
    assert generated.image is not None
    if not (generated.latents.isfinite().all() and np.isfinite(generated.image).all()):
        return "is not finite (NaN or infinity)"
    if np.ptp(generated.image) * 255 < 1:
        return "is one constant colour"
    return None


@dataclass
class _Bar:
    """Steps done over all missing pictures, on a terminal all the time, elsewhere now and then."""

    progress: Progress
    task: TaskID
    pulse: Pulse | None
    """Says it where no terminal shows it; None on other ranks, and where one does."""
    total_steps: int
    total: int
    pictures: int = 0
    which: str = ""

    def begin(self, prompt: Prompt) -> None:
        self.which = f"picture {self.pictures + 1}/{self.total}"
        self.progress.update(self.task, description=f"{self.which}: {prompt.index:02d} {prompt.text[:40]}")

    def step(self, done: int) -> None:
        self.progress.update(self.task, completed=self.pictures * self.total_steps + done)
        if self.pulse is not None:
            self.pulse.beat(lambda: f"{self.which}, step {done}/{self.total_steps}")

    def done(self) -> None:
        self.pictures += 1


@contextmanager
def _progress(pipeline: RankPipeline, pictures: int) -> Iterator[_Bar]:
    """A progress bar on rank 0, silent on the others and where there is no terminal."""
    columns = (
        TextColumn("{task.description:44}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(),
    )
    steps = len(pipeline.steps)
    out = console()
    shown = pipeline.ranks.is_main and out.is_terminal
    pulse = Pulse(out.print) if pipeline.ranks.is_main and not shown else None
    with Progress(*columns, console=out, transient=True, disable=not shown) as progress:
        yield _Bar(progress, progress.add_task("", total=pictures * steps), pulse, steps, pictures)


def _counted(pictures: int) -> str:
    return "1 picture" if pictures == 1 else f"{pictures} pictures"
