"""The run folder (DESIGN section 5): where its files are, and how they are written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from otil_exp.run_folder.lock import BusyError, held


@dataclass(frozen=True)
class StepRow:
    """One line of steps.csv: what one rank did in one step of one picture."""

    rank: int
    prompt: int
    """Index of the prompt in its set."""
    step: int
    kind: str
    """warmup, steady, refresh or final."""
    ms: float
    """Time from the end of the step before to the end of this one, milliseconds."""
    bytes_sent: int
    """Payload this rank put on the wire (otil_exp.traffic)."""
    collectives: int
    """Collectives this rank took part in."""
    repeat: int = 0
    """Which repetition of mode=benchmark."""


def make_writable(folder: Path, setting: str) -> None:
    """Make a folder, if need be, and see that files can be made in it.

    setting: what a user types to name another one. Raises ValueError, with what to type, where that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # permissions say too little: root, /proc, quotas, full disks
    except OSError as error:
        raise ValueError(
            f"{setting}: {folder} cannot be written to ({error.strerror}); use {setting}=FOLDER, one that you can write"
        ) from error


class BrokenFolderError(ValueError):
    """A file of a run folder that something else than this program cut or changed."""


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
    def locked(self, wait_s: float = 0.0, say: Callable[[str], object] = lambda words: None) -> Iterator[None]:
        """Keep other processes from running this cell meanwhile.

        wait_s: how long one that does is waited for; say: is told of it. Raises ValueError if it still does then.
        """
        make_writable(self.path, "output_dir")
        with ExitStack() as lock:
            try:
                lock.enter_context(
                    held(
                        self.path / ".lock",
                        wait_s,
                        lambda holder: say(f"{self.path} is being run by {holder}: waiting for it"),
                    )
                )
            except BusyError as holder:
                raise ValueError(f"{self.path} is being run by {holder}: wait for it, or stop it") from holder
            yield

    @property
    def finished(self) -> bool:
        return self.record.get("status") == "done"

    @property
    def is_reference(self) -> bool:
        """Whether others are compared with this run."""
        return bool(self.known.get("is_reference", self.known.get("method") == "reference"))

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
        self._write("config.yaml", lambda path: path.write_text(text, encoding="utf-8"))

    def image_path(self, prompt: int) -> Path:
        return self.images / f"{prompt:02d}.png"

    def write_image(self, prompt: int, image: Image.Image) -> None:
        self._write(self.image_path(prompt), lambda path: image.save(path, format="PNG"))

    def reject_image(self, prompt: int, image: Image.Image) -> Path:
        """Keep a picture that failed its check out of images/, so that a rerun makes it again."""
        path = self.path / "rejected" / f"{prompt:02d}.png"
        self._write(path, lambda beside: image.save(beside, format="PNG"))
        return path

    def read_steps(self) -> list[StepRow]:
        path = self.path / "steps.csv"
        if not path.exists():
            return []
        kinds: dict[str, Callable[[str], Any]] = {"kind": str, "ms": float}
        with path.open(newline="", encoding="utf-8") as file:
            return [
                StepRow(**{key: kinds.get(key, int)(value) for key, value in row.items()})
                for row in csv.DictReader(file)
            ]

    def write_steps(self, rows: list[StepRow]) -> None:
        buffer = StringIO()
        writer = csv.DictWriter(buffer, [field.name for field in fields(StepRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) | {"ms": f"{row.ms:.4f}"} for row in rows)
        self._write("steps.csv", lambda path: path.write_text(buffer.getvalue(), encoding="utf-8"))

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise BrokenFolderError(f"{path} is not whole ({error}): delete {self.path} to run it again") from error

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        self._write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def _write(self, name: str | Path, save: Callable[[Path], object]) -> None:
        """Write beside, then rename: a reader sees the old file or the new one, never half of one."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            save(beside)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
