"""The run folder (DESIGN section 5): where its files are and what they say."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from otil_exp.run_folder.steps import StepRow, read_steps, write_steps
from otil_exp.run_folder.whole import BrokenFolderError, make_writable, remove_parts, write_text, write_whole


class RunFolder:
    """One run's files. Finished ones are never overwritten; shared ones are written by one process at a time.

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
        """Keep other processes from running this cell meanwhile. Raises ValueError if one does."""
        make_writable(self.path, "output_dir")
        with (self.path / ".lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(f"{self.path} is being run by another process: wait for it, or stop it") from error
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
    def record(self) -> dict[str, Any]:
        """record.json; empty when there is none yet."""
        return self._read_json("record.json")

    @property
    def known(self) -> dict[str, Any]:
        """What the record says, or is going to say."""
        return self.planned | self.record

    def update_record(self, **values: Any) -> None:
        """Set keys of record.json, keeping the others."""
        self._write_json("record.json", self.record | values)

    @property
    def metrics(self) -> dict[str, Any]:
        """metrics.json; empty when there is none yet."""
        return self._read_json("metrics.json")

    def update_metrics(self, metrics: dict[str, Any]) -> None:
        """Set metrics of metrics.json, keeping the others."""
        self._write_json("metrics.json", self.metrics | metrics)

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml, plain."""
        return dict(yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8")))

    def write_config(self, config: dict[str, Any]) -> None:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        write_text(self.path / "config.yaml", text)

    def image_path(self, prompt: int) -> Path:
        return self.images / f"{prompt:02d}.png"

    def write_image(self, prompt: int, image: Image.Image) -> None:
        write_whole(self.image_path(prompt), lambda beside: image.save(beside, format="PNG"))

    def reject_image(self, prompt: int, image: Image.Image) -> Path:
        """Keep a picture that failed its check out of images/, so that a rerun makes it again."""
        path = self.path / "rejected" / f"{prompt:02d}.png"
        write_whole(path, lambda beside: image.save(beside, format="PNG"))
        return path

    def read_steps(self) -> list[StepRow]:
        return read_steps(self.path / "steps.csv")

    def write_steps(self, rows: Sequence[StepRow]) -> None:
        write_steps(self.path / "steps.csv", rows)

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise BrokenFolderError(f"{path} is not whole ({error}): delete {self.path} to run it again") from error

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        write_text(self.path / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
