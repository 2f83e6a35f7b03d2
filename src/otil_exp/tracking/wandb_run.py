"""tracker=wandb and wandb_offline: one W&B run for one run folder, from rank 0."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import wandb
from PIL import Image

from otil_exp.choices import TrackerKind
from otil_exp.config import ExperimentConfig
from otil_exp.metrics.seam import Boundaries
from otil_exp.prompts import Prompt
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import find_reference
from otil_exp.run_folder.steps import StepRow
from otil_exp.tracking.credentials import key_is_set
from otil_exp.tracking.facts import run_config, run_id, run_name, run_tags
from otil_exp.tracking.history import by_picture, step_entries
from otil_exp.tracking.keys import COUNT
from otil_exp.tracking.pictures import AMPLIFIED, difference, marked, seam_profiles
from otil_exp.tracking.scores import histograms, per_prompt, values
from otil_exp.tracking.secrets import redacted, secrets_of

log = logging.getLogger(__name__)

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
        with Image.open(self._folder.image_path(prompt.index)) as file:
            picture = file.convert("RGB")
        reference = self._reference_picture(prompt.index)
        caption = redacted(prompt.text, self._secrets)
        media: dict[str, Any] = {f"picture/{number}": wandb.Image(marked(picture, self._seams), caption=caption)}
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
        rows, metrics = self._folder.read_steps(), self._folder.metrics
        self.steps(rows)  # of mode=benchmark, which hands them in at its end
        columns, table = per_prompt(self._folder.record["prompts"], metrics)
        scores = values(metrics)
        media: dict[str, Any] = {f"histogram/ms_{kind}": wandb.Histogram(ms) for kind, ms in histograms(rows).items()}
        media["per_prompt"] = wandb.Table(columns=columns, data=redacted(table, self._secrets))
        self._run.log({key: value for key, value in scores.items() if value is not None} | media)
        self._run.summary.update(scores)
        self._run.finish(exit_code=0)

    def fail(self, error: BaseException) -> None:
        self._run.summary["failure/error"] = redacted(f"{type(error).__name__}: {error}", self._secrets)
        self._run.finish(exit_code=1)

    def _start(self) -> wandb.Run:
        """Begin online where that was asked for, a key is set and the server answers in time; else offline."""
        # wandb's own crash reports would hold up the end of a job on a node without internet.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        if self._config.tracker.name is TrackerKind.wandb:
            reason = "no key is set (wandb login, or WANDB_API_KEY)"
            try:
                if key_is_set(wandb.setup().settings.base_url):
                    return self._init("online")
            except Exception as error:  # any: a tracker must not cost the run
                reason = redacted(f"{type(error).__name__}: {error}", self._secrets)
            wandb.teardown()  # else the id counts as taken
            where = self._folder.path / "wandb"
            log.warning("tracker=wandb logs offline, since %s; later: wandb sync %s/offline-run-*", reason, where)
        return self._init("offline")

    def _init(self, mode: str) -> wandb.Run:
        config, record, tracker = self._config, self._folder.record, self._config.tracker
        # Tables are staged below this folder until they are synced.
        os.environ.setdefault("WANDB_DATA_DIR", str(self._folder.path / "wandb"))
        (self._folder.path / "wandb").mkdir(parents=True, exist_ok=True)
        return wandb.init(
            mode=mode,  # type: ignore[arg-type]
            dir=str(self._folder.path),
            entity=tracker.entity,
            project=tracker.project,
            id=run_id(record),
            resume="allow",
            group=redacted(config.name, self._secrets),
            job_type=config.mode.name,
            name=redacted(run_name(record), self._secrets),
            tags=redacted(run_tags(self._folder), self._secrets),
            config=redacted(run_config(self._folder, self._seams), self._secrets),
            settings=_settings(tracker.init_timeout_s, tracker.finish_timeout_s),
        )

    def _wandb_step(self, prompt: int, repeat: int, index: int) -> int:
        """The same in every job of a run: a picture's steps, then its media."""
        return (self._places[prompt] + repeat) * (self._config.num_inference_steps + 1) + index

    def _reference_picture(self, index: int) -> Image.Image | None:
        if self._reference is None:
            return None
        with Image.open(self._reference.image_path(index)) as file:
            return file.convert("RGB")


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
