"""Ground truth for distances between sets: a folder of pictures, or renders of what captions of scenes ask for.

Both are sequences of pictures (3, height, width), float32 in [0, 1], made when asked for: a rank takes its share by
index, and memory does not grow with their number.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from otil_exp.metrics.any_picture import check_header, read_rgb
from otil_exp.shapes.scenes import jitter, parse, render

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Files of a folder that count as pictures, in either case."""

SAMPLE = 4096
"""Bytes of a file that are looked at in three places, to tell its picture from another of the same size."""


class _Pictures(Sequence[Tensor]):
    """What a subclass makes one by one, with slices that stay lists."""

    paired: bool
    """Whether picture i shows what prompt i asks for: nobody knows that of a folder's files."""

    def _make(self, index: int) -> Tensor:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        chosen = range(len(self))[index]
        return self._make(chosen) if isinstance(chosen, int) else [self._make(each) for each in chosen]


class FolderPictures(_Pictures):
    """The pictures of a folder, in the order of their names, each stretched to the run's size (Lanczos).

    height, width: of the run, in pixels; None leaves every picture at its own size. A picture of another shape is
    stretched whole rather than cropped, so that nothing of it is left out. Folders inside the folder are not looked
    into, and neither are hidden files, such as the ._ ones that macOS leaves beside pictures. Raises ValueError for a
    folder that is not there or holds no pictures.
    """

    paired = False

    def __init__(self, folder: Path | str, height: int | None = None, width: int | None = None) -> None:
        self.folder = Path(folder).expanduser()
        if not os.path.isdir(self.folder):
            raise ValueError(f"ground truth {folder} is not a folder: use a folder of pictures")
        self.files = _listing(self.folder, self.folder.stat().st_mtime_ns)
        if not self.files:
            raise ValueError(f"ground truth {folder} holds no pictures ({' '.join(SUFFIXES)}): use another folder")
        self.height, self.width = height, width

    @property
    def paths(self) -> list[Path]:
        return [self.folder / name for name, _, _ in self.files]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def identity(self) -> dict[str, Any]:
        """Which pictures these are, for entries of metrics.json: path, count, digest of names, sizes in bytes, and
        SAMPLE bytes from three places of each: others under the same names have another one, on any machine."""
        seen = _fingerprint(self.folder, self.folder.stat().st_mtime_ns)
        return {"path": str(self.folder.absolute()), "count": len(self), "digest": seen}

    @property
    def content(self) -> str:
        """Digest of names, sizes in bytes, times of change and the size that they are brought to."""
        return digest([self.files, self.height, self.width])

    def check(self) -> None:
        """Raise ValueError unless these are 2 pictures or more whose headers, as far as those tell, can be read."""
        if len(self) < 2:
            raise ValueError(f"ground truth {self.folder} holds one picture: a distance between sets needs 2 or more")
        _check_headers(self.folder, self.folder.stat().st_mtime_ns)

    def _make(self, index: int) -> Tensor:
        picture = read_rgb(self.paths[index])
        if self.width is not None and self.height is not None and picture.size != (self.width, self.height):
            picture = picture.resize((self.width, self.height), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255).permute(2, 0, 1)


@lru_cache
def _listing(folder: Path, changed: int) -> tuple[tuple[str, int, int], ...]:
    """Name, size in bytes and time of change of a folder's pictures; looked at once for all cells of a grid."""
    named = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")]
    with _named():
        stats = [(path.name, path.stat()) for path in sorted(named) if not path.is_dir()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


@lru_cache
def _fingerprint(folder: Path, changed: int) -> str:
    seen = hashlib.sha256()
    for name, size, _ in _listing(folder, changed):
        seen.update(json.dumps([name, size]).encode())
        with _named(), (folder / name).open("rb") as file:
            for start in (0, size // 2, max(size - SAMPLE, 0)):
                file.seek(start)
                seen.update(file.read(SAMPLE))
    return seen.hexdigest()[:12]


@contextmanager
def _named() -> Iterator[None]:
    """A link to nothing, or a file that may not be read, is a sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"ground truth {error.filename}: {error.strerror}; put it there or take it out") from error


@lru_cache
def _check_headers(folder: Path, changed: int) -> None:
    for name, _, _ in _listing(folder, changed):
        check_header(folder / name)


def digest(content: object) -> str:
    """12 hex digits over plain values."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


class ScenePictures(_Pictures):
    """What captions of the shapes model ask for, drawn: the scene read back from the words.

    What a caption leaves open (a little place and size) is drawn at random, as in the pictures that the model learnt
    from, but always the same for the same position in the list. Raises ValueError for a caption without a shape, and
    for a picture that is not square.
    """

    paired = True

    def __init__(self, captions: Sequence[str], height: int, width: int) -> None:
        if height != width:
            raise ValueError(f"{height}x{width}: scenes are drawn square only, use height={width} here")
        self.captions = list(captions)
        self.scenes = [jitter(parse(caption), Random(index)) for index, caption in enumerate(captions)]
        self.side = height

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def identity(self) -> dict[str, Any]:
        """Which pictures these are, for entries of metrics.json: "renders", count, digest of the captions, and that
        they were compared pair by pair (earlier versions did not)."""
        return {"path": "renders", "count": len(self), "digest": digest(self.captions), "paired": self.paired}

    def _make(self, index: int) -> Tensor:
        return render([self.scenes[index]], self.side)[0]


def ground_truth(source: str, captions: Sequence[str], height: int, width: int) -> FolderPictures | ScenePictures:
    """What metrics.ground_truth names: renders of the captions, or a folder. Raises ValueError as those do."""
    return ScenePictures(captions, height, width) if source == "renders" else FolderPictures(source, height, width)
