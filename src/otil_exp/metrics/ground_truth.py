"""Ground truth for distances between sets: a folder of pictures, or renders of what captions of scenes ask for.

Both are sequences of pictures (3, height, width), float32 in [0, 1], made when asked for: a rank takes its share by
index, and memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import overload

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from otil_exp.shapes.scenes import jitter, parse, render

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Files of a folder that count as pictures, in either case."""


class _Pictures(Sequence[Tensor]):
    """What a subclass makes one by one, with slices that stay lists."""

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

    A picture of another shape is stretched whole rather than cropped, so that nothing of it is left out. Folders
    inside the folder are not looked into. Raises ValueError for a folder that is not there or holds no pictures.
    """

    def __init__(self, folder: Path | str, height: int, width: int) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise ValueError(f"ground truth {folder} is not a folder: use a folder of pictures")
        self.paths = sorted(path for path in self.folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if not self.paths:
            raise ValueError(f"ground truth {folder} holds no pictures ({' '.join(SUFFIXES)}): use another folder")
        self.height, self.width = height, width

    def __len__(self) -> int:
        return len(self.paths)

    def count_resized(self) -> int:
        """How many pictures are not of the run's size as they are; reads the files' headers only."""
        return sum(self._open(path).size != (self.width, self.height) for path in self.paths)

    def _make(self, index: int) -> Tensor:
        path = self.paths[index]
        try:
            upright = ImageOps.exif_transpose(self._open(path)).convert("RGB")
        except OSError as error:
            raise ValueError(f"{path} is broken ({error}): replace it or take it out") from error
        if upright.size != (self.width, self.height):
            upright = upright.resize((self.width, self.height), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(upright, dtype=np.float32) / 255).permute(2, 0, 1)

    @staticmethod
    def _open(path: Path) -> Image.Image:
        try:
            return Image.open(path)
        except UnidentifiedImageError as error:
            raise ValueError(f"{path} is not a picture, whatever its name says: take it out of the folder") from error


class ScenePictures(_Pictures):
    """What captions of the shapes model ask for, drawn: the scene read back from the words.

    What a caption leaves open (a little place and size) is drawn at random, as in the pictures that the model learnt
    from, but always the same for the same position in the list. Raises ValueError for a caption without a shape, and
    for a picture that is not square.
    """

    def __init__(self, captions: Sequence[str], height: int, width: int) -> None:
        if height != width:
            raise ValueError(f"{height}x{width}: scenes are drawn square only, use height={width} here")
        self.scenes = [jitter(parse(caption), Random(index)) for index, caption in enumerate(captions)]
        self.side = height

    def __len__(self) -> int:
        return len(self.scenes)

    def _make(self, index: int) -> Tensor:
        return render([self.scenes[index]], self.side)[0]
