"""The run folder (docs/run_folder.md): where its files are and what they say."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from otil_exp.run_folder.lock import locked
from otil_exp.run_folder.messages import MessageRow, read_messages, write_messages
from otil_exp.run_folder.record import Record, read_config, read_metrics, read_record
from otil_exp.run_folder.steps import StepRow, Steps, append_steps, read_steps, write_steps
from otil_exp.run_folder.whole import (
    BrokenFolderError,
    checksum,
    is_whole_png,
    remove_parts,
    write_text,
    write_whole,
)

SEALED = ("config.yaml", "steps.csv")
"""Files that may lose lines and still read well: the record of a run that is done has their checksums."""


class RunFolder:
    """One run's files. Finished ones are never overwritten; shared ones are written by one process at a time.

    What reads a file raises BrokenFolderError, which names it, where something else cut or changed it.

    planned: what the record is going to say of method, topology, k and refresh, and under "config" config.yaml, for
        tables of runs that never began.
    """

    def __init__(self, path: Path, planned: dict[str, Any] | None = None) -> None:
        self.path = path
        self.planned = planned or {}

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running this cell meanwhile. Raises as `otil_exp.run_folder.lock.locked` does."""
        with locked(self.path):
            remove_parts(self.path)
            yield

    @property
    def finished(self) -> bool:
        return self.record.get("status") == "done"

    @property
    def is_reference(self) -> bool:
        """Whether others are compared with this run."""
        return bool(self.known.get("is_reference"))

    @property
    def record(self) -> Record:
        """record.json; empty when there is none yet."""
        return read_record(self.path / "record.json")

    @property
    def known(self) -> dict[str, Any]:
        """What the record says, or is going to say."""
        return self.planned | self.record

    def update_record(self, **values: Any) -> None:
        """Set keys of record.json, keeping the others."""
        self._write_json("record.json", self.record | values)

    def finish(self, **values: Any) -> None:
        """Note that the run is done, and what its files hold: one that is cut later does not pass for whole."""
        sums = {name: found for name in SEALED if (found := checksum(self.path / name)) is not None}
        self.update_record(**values, status="done", checksums=sums)

    @property
    def metrics(self) -> dict[str, Any]:
        """metrics.json; empty when there is none yet."""
        return read_metrics(self.path / "metrics.json")

    def update_metrics(self, metrics: dict[str, Any], without: Collection[str] = ()) -> None:
        """Set metrics of metrics.json, keeping the others but those of the keys in `without`."""
        kept = {key: value for key, value in self.metrics.items() if key not in without}
        self._write_json("metrics.json", kept | metrics)

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml, plain."""
        self._check_seal("config.yaml", self.record)
        return read_config(self.path / "config.yaml")

    def write_config(self, config: dict[str, Any]) -> None:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        write_text(self.path / "config.yaml", text)

    def image_path(self, prompt: int) -> Path:
        return self.images / f"{prompt:02d}.png"

    def write_image(self, prompt: int, image: Image.Image) -> None:
        write_whole(self.image_path(prompt), lambda beside: image.save(beside, format="PNG"))

    def has_image(self, prompt: int) -> bool:
        """Whether the picture of a prompt is there and whole; one that is not is made again."""
        return is_whole_png(self.image_path(prompt))

    def check_images(self, prompts: Sequence[int]) -> None:
        """Raise BrokenFolderError for the first picture of these prompts that is not there or not whole."""
        for prompt in prompts:
            if not self.has_image(prompt):
                raise BrokenFolderError(
                    f"{self.image_path(prompt)} is not a whole picture: the command that made it makes it again"
                )

    def reject_image(self, prompt: int, image: Image.Image) -> Path:
        """Keep a picture that failed its check out of images/, so that a rerun makes it again."""
        path = self.path / "rejected" / f"{prompt:02d}.png"
        write_whole(path, lambda beside: image.save(beside, format="PNG"))
        return path

    def read_steps(self) -> Steps:
        """The rows of steps.csv; those of pictures that are still being made among them."""
        record = self.record
        self._check_seal("steps.csv", record)
        return read_steps(self.path / "steps.csv", complete=record.get("status") == "done")

    def write_steps(self, rows: Iterable[StepRow]) -> None:
        """Write steps.csv anew."""
        write_steps(self.path / "steps.csv", rows)

    def append_steps(self, rows: Sequence[StepRow]) -> None:
        """Add the rows of a picture to steps.csv."""
        append_steps(self.path / "steps.csv", rows)

    def read_messages(self) -> Sequence[MessageRow] | None:
        """The rows of messages.csv; None where there is none, as in runs of earlier versions."""
        return read_messages(self.path / "messages.csv")

    def write_messages(self, rows: Sequence[MessageRow]) -> None:
        """Write messages.csv: those of one picture are those of all."""
        write_messages(self.path / "messages.csv", rows)

    def _check_seal(self, name: str, record: Record) -> bool:
        """Whether the record has the checksum of a file; raises BrokenFolderError where the file has another one."""
        sealed = record.get("checksums", {}).get(name) if record.get("status") == "done" else None
        if sealed is not None and checksum(self.path / name) != sealed:
            raise BrokenFolderError(
                f"{self.path / name} is not whole (it is not what the run wrote): delete {self.path} to run it again"
            )
        return sealed is not None

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        write_text(self.path / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
