"""tracker=wandb and wandb_offline: one W&B run for one run folder, from rank 0."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import wandb

from otil_exp.choices import TrackerKind
from otil_exp.config import ExperimentConfig, TrackerConfig
from otil_exp.metrics.seam import Boundaries
from otil_exp.prompts import Prompt
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import find_reference
from otil_exp.run_folder.steps import StepRow, Steps
from otil_exp.run_folder.whole import write_text
from otil_exp.tracking.credentials import key_is_set
from otil_exp.tracking.facts import run_config, run_id, run_name, run_tags
from otil_exp.tracking.files import picture_of, staged_in
from otil_exp.tracking.history import by_picture, step_entries
from otil_exp.tracking.keys import COUNT
from otil_exp.tracking.pictures import AMPLIFIED, difference, marked, seam_profiles
from otil_exp.tracking.scores import histograms, per_prompt, spread, values
from otil_exp.tracking.secrets import redacted, secrets_of

log = logging.getLogger(__name__)

ARGUMENTS = "arguments.json"
"""What the run was begun with, for those who add to it later."""

FLUSH_S = 1.0
"""Seconds between writes of the local log: what a SIGKILL may cost (wandb's own default is 15)."""


class WandbTracker:
    """A `Tracker`. config: an effective one; folder: its record has begun."""

    def __init__(self, config: ExperimentConfig, folder: RunFolder) -> None:
        self._config, self._folder = config, folder
        self._secrets = secrets_of(os.environ)
        seams = folder.record["seams"]
        self._seams = Boundaries(rows=tuple(seams["rows"]), columns=tuple(seams["columns"]))
        self._reference = find_reference(folder)
        self._places = {prompt["index"]: place for place, prompt in enumerate(folder.record["prompts"])}
        # What an earlier job of this run has logged.
        self._logged = {(index, 0) for index in self._places if folder.image_path(index).exists()}
        self._run = self._start()
        self._run.define_metric("step/*", step_metric=COUNT, summary="none")

    def steps(self, rows: Sequence[StepRow]) -> None:
        for (prompt, repeat), own in by_picture(rows).items():
            if (prompt, repeat) in self._logged:
                continue
            first = (self._places[prompt] + repeat) * self._config.num_inference_steps
            for entry in step_entries(own, first):
                self._run.log(entry, step=self._wandb_step(prompt, repeat, entry["step/index"]), commit=True)
            self._logged.add((prompt, repeat))

    def picture(self, prompt: Prompt) -> None:
        place = self._places[prompt.index]
        if place >= self._config.tracker.pictures:
            return
        number = f"{prompt.index:02d}"
        picture = picture_of(self._folder, prompt.index)
        if picture is None:
            return
        reference = None if self._reference is None else picture_of(self._reference, prompt.index)
        caption = redacted(prompt.text, self._secrets)
        media: dict[str, Any] = {f"picture/{number}": _file_of(self._folder, prompt.index, caption)}
        if self._seams.labels:
            media[f"marked/{number}"] = wandb.Image(marked(picture, self._seams), caption=caption)
        if reference is not None:
            shown = wandb.Image(difference(picture, reference), caption=f"{AMPLIFIED} x |difference|: {caption}")
            media[f"difference/{number}"] = shown
        for name, cut in (("rows", self._seams.rows), ("columns", self._seams.columns)):
            if cut:
                lines = seam_profiles(picture, reference, columns=name == "columns")
                media[f"seam_profile/{name}/{number}"] = _profile_chart(lines, f"{number}: seams at {list(cut)}", name)
        after = self._config.num_inference_steps
        self._run.log(media, step=self._wandb_step(prompt.index, 0, after), commit=True)

    def finish(self) -> None:
        steps = self._folder.read_steps()
        self.steps(steps.where(~self._known(steps)))  # of mode=benchmark, which hands them in at its end
        media = {f"histogram/ms_{kind}": wandb.Histogram(ms.tolist()) for kind, ms in histograms(steps).items()}
        _note_engine(self._run, self._folder, self._secrets)
        log_scores(self._run, self._folder, self._config.tracker.pictures, self._secrets, media)
        self._run.finish(exit_code=0)

    def fail(self, error: BaseException) -> None:
        self._run.summary["failure/error"] = redacted(f"{type(error).__name__}: {error}", self._secrets)
        self._run.finish(exit_code=1)

    def _known(self, steps: Steps) -> np.ndarray:
        """(n,) bool: the steps that are logged, of mode=generate."""
        prompts = [prompt for prompt, repeat in self._logged if repeat == 0]
        known: np.ndarray = np.isin(steps.column("prompt"), prompts) & (steps.column("repeat") == 0)
        return known

    def _start(self) -> wandb.Run:
        tracker, folder = self._config.tracker, self._folder
        arguments = {
            "entity": tracker.entity,
            "project": tracker.project,
            "group": self._config.name,
            "job_type": self._config.mode.name,
            "name": run_name(folder),
            "tags": run_tags(folder),
            "config": run_config(self._config, folder, self._seams),
        }
        told = redacted(arguments, self._secrets)
        write_text(folder.path / "wandb" / ARGUMENTS, json.dumps(told, ensure_ascii=False) + "\n")
        return start(folder, tracker, told, self._secrets)

    def _wandb_step(self, prompt: int, repeat: int, index: int) -> int:
        """The same in every job of a run: a picture's steps, then its media."""
        return (self._places[prompt] + repeat) * (self._config.num_inference_steps + 1) + index


def log_scores(
    run: wandb.Run, folder: RunFolder, pictures: int, secrets: list[str], media: dict[str, Any], step: int | None = None
) -> None:
    """Log what metrics.json says, and every prompt with its scores and its picture, the first `pictures` of them."""
    metrics, prompts = folder.metrics, folder.record["prompts"]
    columns, table = per_prompt(prompts, metrics)
    there = [i < pictures and folder.image_path(prompt["index"]).exists() for i, prompt in enumerate(prompts)]
    shown = [
        _file_of(folder, prompt["index"]) if made and picture_of(folder, prompt["index"]) is not None else None
        for prompt, made in zip(prompts, there, strict=True)
    ]
    rows = [[*redacted(row, secrets), picture] for row, picture in zip(table, shown, strict=True)]
    scores = values(metrics)
    known = {key: value for key, value in scores.items() if value is not None}
    run.log(known | media | {"per_prompt": wandb.Table(columns=[*columns, "picture"], data=rows)}, step=step)
    run.summary.update(scores | spread(metrics))


def _file_of(folder: RunFolder, prompt: int, caption: str | None = None) -> wandb.Image:
    """A picture as its file has it: wandb would write what was decoded as a PNG anew, while ranks wait."""
    return wandb.Image(str(folder.image_path(prompt)), caption=caption)


def log_again(folder: RunFolder, tracker: TrackerConfig) -> None:
    """Log the scores of a finished run anew: they were made after its own job had ended."""
    secrets, record = secrets_of(os.environ), folder.record
    arguments = json.loads((folder.path / "wandb" / ARGUMENTS).read_text(encoding="utf-8"))
    run = start(folder, tracker, arguments, secrets)
    _note_engine(run, folder, secrets)
    jobs = len(list((folder.path / "wandb").glob("*run-*")))
    # Behind all that the run's own jobs have logged: W&B leaves out what comes with an earlier step.
    step = (folder.config["num_inference_steps"] + 1) * len(record["prompts"]) + jobs
    log_scores(run, folder, tracker.pictures, secrets, {}, step=step)
    run.finish(exit_code=0)


def _note_engine(run: wandb.Run, folder: RunFolder, secrets: list[str]) -> None:
    """What the steps got is known once they have begun."""
    runs_as = redacted(folder.record.get("engine_runs_as"), secrets)
    run.config.update({"engine_runs_as": runs_as}, allow_val_change=True)


def start(folder: RunFolder, tracker: TrackerConfig, arguments: dict[str, Any], secrets: list[str]) -> wandb.Run:
    """Begin or go on, online where that was asked for, a key is set and the server answers in time; else offline."""
    # wandb's own crash reports would hold up the end of a job on a node without internet.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    if tracker.name is TrackerKind.wandb:
        reason = "no key is set (wandb login, or WANDB_API_KEY)"
        try:
            if key_is_set(wandb.setup().settings.base_url):
                return _init(folder, tracker, "online", arguments)
        except Exception as error:  # any: a tracker must not cost the run
            reason = redacted(f"{type(error).__name__}: {error}", secrets)
        wandb.teardown()  # else the id counts as taken
        where = folder.path / "wandb"
        log.warning("tracker=wandb logs offline, since %s; later: wandb sync %s/offline-run-*", reason, where)
    return _init(folder, tracker, "offline", arguments)


def _init(folder: RunFolder, tracker: TrackerConfig, mode: str, arguments: dict[str, Any]) -> wandb.Run:
    staged_in(folder.path / "wandb")
    return wandb.init(
        mode=mode,  # type: ignore[arg-type]
        dir=str(folder.path),
        id=run_id(folder.record),
        resume="allow",
        settings=_settings(tracker.init_timeout_s, tracker.finish_timeout_s),
        **arguments,
    )


def _settings(init_timeout_s: float, finish_timeout_s: float) -> wandb.Settings:
    """Bounded in time, silent, and without what might carry a secret: command line, console, git remote, packages."""
    return wandb.Settings(
        init_timeout=init_timeout_s,
        finish_timeout=finish_timeout_s,
        x_transaction_log_flush_interval=FLUSH_S,
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_save_requirements=False,
    )


def _profile_chart(lines: dict[str, list[float | None]], title: str, axis: str) -> Any:
    """A line chart of seam profiles over rows or columns, without the margins."""
    defined = [y for y, value in enumerate(lines["picture"]) if value is not None]
    ys = [[line[y] for y in defined] for line in lines.values()]
    return wandb.plot.line_series(xs=defined, ys=ys, keys=list(lines), title=title, xname=axis.removesuffix("s"))
