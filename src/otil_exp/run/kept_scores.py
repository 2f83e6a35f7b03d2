"""Scores of single pictures, kept while a run is being scored: one that is interrupted goes on where it stopped.

A line of JSON a picture in `scores/` of the run folder, a file a process, gone when metrics.json has them all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from otil_exp.metrics.picture import PictureScores, Scorers
from otil_exp.run_folder.folder import RunFolder

log = logging.getLogger(__name__)

_FEATURES = ("features", "reference_features")


class KeptScores:
    """What this and earlier processes have scored of a run, by one and the same judgement."""

    def __init__(self, folder: RunFolder, scorers: Scorers, basis: dict[str, Any], device: torch.device | str) -> None:
        """basis: what the scores depend on besides the pictures, plain. device: what the networks compute on."""
        networks = [[one.name, one.backend, one.resize] for one in scorers.extractors]
        made_by = [basis, networks, torch.device(device).type, torch.__version__]
        self._judgement = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
        self._folder, self._scores = folder, folder.path / "scores"

    def read(self, beside: RunFolder | None) -> dict[int, PictureScores]:
        """The scores of pictures that are still the ones that were scored, by index of their prompt.

        beside: the reference run.
        """
        found: dict[int, PictureScores] = {}
        for file in sorted(self._scores.glob("*.jsonl")):
            header, *lines = file.read_text(encoding="utf-8").split("\n")
            if header == self._judgement:
                for line in lines[:-1]:  # what follows the last line's end is half of one, or nothing
                    seen, scores = _read(line)
                    if seen == self._seen(scores.prompt, beside):
                        found[scores.prompt] = scores
        return found

    @contextmanager
    def keeping(self, rank: int, beside: RunFolder | None) -> Iterator[_Keeper]:
        """Keep what this process scores from now on; where the disk does not let us, say so and go on."""
        try:
            self._scores.mkdir(exist_ok=True)
            file = (self._scores / f"{time.time_ns()}-{os.getpid()}-{rank}.jsonl").open("x", encoding="utf-8")
        except OSError as error:
            log.warning("an interrupted scoring will begin anew, %s cannot be written: %s", self._scores, error)
            yield _Keeper(None, self._seen, beside)
            return
        with file:
            file.write(f"{self._judgement}\n")
            yield _Keeper(file, self._seen, beside)

    def drop(self) -> None:
        """metrics.json has them all."""
        shutil.rmtree(self._scores, ignore_errors=True)

    def _seen(self, prompt: int, beside: RunFolder | None) -> list[list[int] | None]:
        """Which files were scored: size and time of change of the picture and of the reference's."""
        paths = [self._folder.image_path(prompt), None if beside is None else beside.image_path(prompt)]
        return [None if path is None else _state(path) for path in paths]


class _Keeper:
    def __init__(self, file: TextIO | None, seen: Any, beside: RunFolder | None) -> None:
        self._file, self._seen, self._beside = file, seen, beside

    def keep(self, scores: PictureScores) -> None:
        """Add the scores of a picture; they outlive this process when this returns."""
        if self._file is None:
            return
        try:
            self._file.write(_line(self._seen(scores.prompt, self._beside), scores))
            self._file.flush()
        except OSError as error:
            log.warning("an interrupted scoring will begin anew from here: %s", error)
            self._file = None


def _state(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _line(seen: Sequence[list[int] | None], scores: PictureScores) -> str:
    plain = asdict(scores)
    for key in _FEATURES:
        plain[key] = {name: _text(value) for name, value in plain[key].items()}
    return json.dumps({"seen": seen, "scores": plain}) + "\n"


def _read(line: str) -> tuple[list[list[int] | None], PictureScores]:
    content = json.loads(line)
    plain = content["scores"]
    for key in _FEATURES:
        plain[key] = {name: _array(text) for name, text in plain[key].items()}
    return content["seen"], PictureScores(**plain)


def _text(features: np.ndarray) -> str:
    """(1, size) float64 whose values are float32: networks compute in float32."""
    return base64.b64encode(features.astype("<f4").tobytes()).decode("ascii")


def _array(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64)[None]
