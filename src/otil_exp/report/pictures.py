"""The pictures of all runs, prompt by prompt: small ones for the page, what differs from the reference, and links."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from otil_exp.report.collect import Run
from otil_exp.report.profile import Profile, profiles

QUALITY, EFFORT = 80, 2
"""WebP quality of small pictures, and how long to look for few bytes (0 to 6): 4 takes twice as long and saves 3 %."""

BUDGET, MOST = 45e6, 1200
"""Most bytes that pictures take in a page whose number of prompts nobody chose, and most pictures: a tenth of a second
each."""

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


Read = np.ndarray | str
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
    how many rows; None: as many as take less than `budget` bytes in the page and have at most MOST pictures, and at
    least one.
    """
    wanted: dict[tuple[int, str, str, int], list[Run]] = {}
    for run in runs:
        for prompt in run.prompts if run.config.get("mode") != "benchmark" else []:
            wanted.setdefault((prompt["index"], run.picture_key, prompt["text"], prompt["seed"]), []).append(run)
    found, taken, pictures = list[PromptRow](), 0, 0
    with ThreadPoolExecutor() as pool:
        for key, its in sorted(wanted.items())[:limit]:
            pictures += len(its)
            if limit is None and found and pictures > MOST:
                break
            row = _row(key, its, page_folder, side, pool)
            taken += row.bytes
            if limit is None and found and taken > budget:
                break
            found.append(row)
    return Pictures(found, len(wanted))


def _row(
    key: tuple[int, str, str, int], runs: Sequence[Run], page_folder: Path, side: int, pool: ThreadPoolExecutor
) -> PromptRow:
    """Each file is read once, and only the references', which all are set against, stay while the row is made."""
    index, _, text, seed = key
    shown, config = _with_references(runs), runs[0].config
    beside = {run.reference.folder.image_path(index) for run in shown if run.reference is not None}
    references = dict(zip(beside, pool.map(_reference, beside), strict=True))
    make = partial(_picture, index=index, page_folder=page_folder, side=side, references=references)
    return PromptRow(
        index=index,
        text=text,
        seed=seed,
        width=int(config.get("width", 1)),
        height=int(config.get("height", 1)),
        pictures=list(pool.map(make, shown)),
    )


def _with_references(runs: Sequence[Run]) -> list[Run]:
    listed = {run.folder.path for run in runs}
    unlisted = {run.reference.folder.path: run.reference for run in runs if run.reference}
    return [*(reference for path, reference in unlisted.items() if path not in listed), *runs]


def _picture(run: Run, index: int, page_folder: Path, side: int, references: Mapping[Path, Read]) -> Picture:
    path = run.folder.image_path(index)
    if not path.exists():
        trouble = [f"no picture: {path} is not there"] if run.status == "done" else [f"no picture ({run.status})"]
        return Picture(run=run, trouble=trouble)
    link = quote(Path(os.path.relpath(path, page_folder)).as_posix())
    picture = references[path] if path in references else _read(path)
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
    at = run.reference.folder.image_path(index)
    reference = references[at]
    if not isinstance(reference, str) and reference.shape != picture.shape:
        reference = f"the reference's {at} has another size"
    if isinstance(reference, str):
        return Picture(**common, trouble=[f"no difference: {reference}"])
    difference = np.subtract(picture, reference, dtype=np.int16)
    apart = np.maximum(picture, reference) - np.minimum(picture, reference)  # 8 bits hold it
    strong = np.where(apart > 255 // GAIN, np.uint8(255), apart * np.uint8(GAIN))
    along_columns = any(label == "column" for label, _ in common["seams"])
    return Picture(**common, difference=_data_uri(strong, side), profiles=profiles(difference, along_columns))


def _reference(path: Path) -> Read:
    """A reference's picture, or why there is none to set others against."""
    return _read(path) if path.exists() else f"the reference's {path} is not there"


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


def _read(path: Path) -> Read:
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
    small.save(buffer, format="WEBP", quality=QUALITY, method=EFFORT)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
