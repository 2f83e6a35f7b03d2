"""The pictures of all runs, prompt by prompt: small ones for the page, what differs from the reference, and links."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from otil_exp.report.collect import Run
from otil_exp.report.profile import Profile, profiles

QUALITY = 80
"""WebP quality of small pictures."""

BUDGET = 45e6
"""Most bytes that pictures take in a page whose number of prompts nobody chose."""

AT_ONCE = 16
"""Rows made between two looks at the budget."""

GAIN = 4
"""How many times stronger a difference is drawn than it is."""

FACTS = {
    "ref/psnr": ("{:.1f} dB", "PSNR to the reference"),
    "ref/lpips_alex": ("LPIPS {:.3g}", "LPIPS to the reference"),
    "ref/effnet_lite0_5stage": ("distance {:.3g}", "EfficientNet distance to the reference"),
    "ref/step_levels": (
        "seam {:.2f}",
        "grey levels it steps at slice boundaries where the reference does not",
    ),
}
"""Scores of a single picture below it: how it is written, what it is."""


Reader = Callable[[Path], "np.ndarray | str"]
"""A file's picture, or what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of one run; without `small`, the run has none for this prompt, or one that cannot be read."""

    run: Run
    trouble: list[str] = field(default_factory=list)
    """What is missing or broken, with the path of the file."""
    link: str = ""
    """Full size, relative to the page."""
    small: str = ""
    """Data URI."""
    difference: str = ""
    """Data URI of the difference to the reference times GAIN; empty where there is no reference picture."""
    profiles: list[Profile] = field(default_factory=list)
    seams: list[tuple[str, float]] = field(default_factory=list)
    """(row or column, place in per cent of the picture)."""
    facts: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PromptRow:
    """All pictures of one prompt and seed that can be compared."""

    index: int
    text: str
    seed: int
    width: int
    height: int
    pictures: list[Picture]

    @property
    def bytes(self) -> int:
        """What the row takes in a page: pictures, paths of profiles, and some for what stands around them."""
        paths = (path for picture in self.pictures for profile in picture.profiles for _, path in profile.paths)
        images = sum(len(picture.small) + len(picture.difference) for picture in self.pictures)
        return images + sum(map(len, paths)) + 2000 * len(self.pictures)


@dataclass(frozen=True)
class Pictures:
    """The rows that a page shows, and how many there are."""

    rows: list[PromptRow]
    of: int


def prompt_rows(
    runs: Sequence[Run], page_folder: Path, side: int, limit: int | None = None, budget: float = BUDGET
) -> Pictures:
    """The rows of a report in prompt order; references come first, also unlisted ones.

    page_folder: where the page will lie, for the links. side: longest side of the small pictures, in pixels. limit:
    how many rows; None: as many as take less than `budget` bytes in the page, and at least one.
    """
    wanted: dict[tuple[int, str, str, int], list[Run]] = {}
    for run in runs:
        for prompt in run.prompts if run.config.get("mode") != "benchmark" else []:
            wanted.setdefault((prompt["index"], run.picture_key, prompt["text"], prompt["seed"]), []).append(run)
    chosen = sorted(wanted.items())[:limit]
    found: list[PromptRow] = []
    taken = 0
    with ThreadPoolExecutor() as pool:
        row = partial(_row, page_folder=page_folder, side=side)
        for start in range(0, len(chosen), AT_ONCE):
            made = list(pool.map(row, *zip(*chosen[start : start + AT_ONCE], strict=True)))
            for one in made:
                taken += one.bytes
                if limit is None and found and taken > budget:
                    return Pictures(found, len(wanted))
                found.append(one)
    return Pictures(found, len(wanted))


def _row(key: tuple[int, str, str, int], runs: Sequence[Run], *, page_folder: Path, side: int) -> PromptRow:
    index, _, text, seed = key
    config = runs[0].config
    read = cache(_read)  # the reference is needed beside every method
    return PromptRow(
        index=index,
        text=text,
        seed=seed,
        width=int(config.get("width", 1)),
        height=int(config.get("height", 1)),
        pictures=[_picture(run, index, page_folder, side, read) for run in _with_references(runs)],
    )


def _with_references(runs: Sequence[Run]) -> list[Run]:
    listed = {run.folder.path for run in runs}
    unlisted = {run.reference.folder.path: run.reference for run in runs if run.reference}
    return [*(reference for path, reference in unlisted.items() if path not in listed), *runs]


def _picture(run: Run, index: int, page_folder: Path, side: int, read: Reader) -> Picture:
    path = run.folder.image_path(index)
    if not path.exists():
        trouble = [f"no picture: {path} is not there"] if run.status == "done" else [f"no picture ({run.status})"]
        return Picture(run=run, trouble=trouble)
    link = quote(Path(os.path.relpath(path, page_folder)).as_posix())
    picture = read(path)
    if isinstance(picture, str):
        return Picture(run=run, link=link, trouble=[picture])
    common: dict[str, Any] = {
        "run": run,
        "link": link,
        "small": _data_uri(picture, side),
        "seams": seams(run),
        "facts": _facts(run, index),
    }
    if run.reference is None:
        return Picture(**common)
    reference = _reference(run.reference.folder.image_path(index), picture, read)
    if isinstance(reference, str):
        return Picture(**common, trouble=[f"no difference: {reference}"])
    difference = picture.astype(np.int16) - reference
    strong = np.minimum(np.abs(difference) * GAIN, 255).astype(np.uint8)
    along_columns = any(label == "column" for label, _ in common["seams"])
    return Picture(**common, difference=_data_uri(strong, side), profiles=profiles(difference, along_columns))


def _reference(path: Path, picture: np.ndarray, read: Reader) -> np.ndarray | str:
    """The reference picture, or why there is none to set a picture against."""
    if not path.exists():
        return f"the reference's {path} is not there"
    reference = read(path)
    if not isinstance(reference, str) and reference.shape != picture.shape:
        return f"the reference's {path} has another size"
    return reference


def seams(run: Run) -> list[tuple[str, float]]:
    """Where the slices of a run meet, as its seam metrics have it: row or column, per cent of the picture."""
    labels: list[str] = next((entry["boundaries"] for entry in run.metrics.values() if "boundaries" in entry), [])
    length = {"row": run.config.get("height"), "column": run.config.get("width")}
    return [(kind, 100 * int(at) / int(length[kind] or 1)) for kind, at in (label.split() for label in labels)]


def _facts(run: Run, index: int) -> list[tuple[str, str]]:
    found = []
    for key, (form, title) in FACTS.items():
        value = run.of_picture(key, index)
        if value is not None:
            found.append((form.format(value), title))
    return found


def _read(path: Path) -> np.ndarray | str:
    """The picture (H, W, 3), or what is wrong with its file."""
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's own for files that are cut or no pictures
        return f"broken picture {path}: {error}"


def _data_uri(picture: np.ndarray, side: int) -> str:
    small = Image.fromarray(picture)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    small.save(buffer, format="WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
