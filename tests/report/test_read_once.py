"""What a report reads does not grow with what it leaves out: files are opened once for each use, and no more."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from otil_exp.report import pictures
from otil_exp.report.collect import collect, find_folders
from otil_exp.report.command import main
from report.folders import add_pictures, add_steps, make_reference, make_run

PROMPTS = 6
SCORE = {"value": 30.0, "n": PROMPTS, "per_image": {f"{i:02d}": 30.0 + i for i in range(PROMPTS)}}

_watched: list[tuple[Path, Counter[str]]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str | bytes | Path):
        folder, seen = _watched[-1]
        path = Path(arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0])
        if path.is_relative_to(folder):
            seen[str(path.relative_to(folder))] += 1


sys.addaudithook(_note)


@contextmanager
def opened(folder: Path) -> Iterator[Counter[str]]:
    """How often each file below a folder is opened, however that is done."""
    _watched.append((folder, Counter()))
    try:
        yield _watched[-1][1]
    finally:
        _watched.pop()


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A reference and two methods of six prompts, sealed as finished runs are."""
    prompts = [{"index": i, "text": f"prompt {i}", "seed": i} for i in range(PROMPTS)]
    folders = [
        make_reference(tmp_path / "grid", prompts=prompts),
        *(make_run(tmp_path / "grid", name, prompts=prompts, metrics={"ref/psnr": SCORE}) for name in ("1", "2")),
    ]
    for folder in folders:
        add_pictures(folder)
        add_steps(folder)
        folder.finish()
    return tmp_path / "grid"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often pictures are opened by Pillow, by run and file."""
    found, really = Counter[str](), Image.open

    def counted(path: Path, *arguments: Any) -> Image.Image:
        found[f"{path.parents[1].name}/{path.name}"] += 1
        return really(path, *arguments)

    monkeypatch.setattr(pictures.Image, "open", counted)
    return found


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--csv"], ["--latex"]])
def test_a_file_of_a_run_is_read_once_for_what_it_says_and_once_for_its_checksum(grid: Path, form: list[str]) -> None:
    with opened(grid) as seen:
        assert main([str(grid), *form, "-o", str(grid.parent / "page")]) == 0
    for name in ("0ref", "1", "2"):
        assert seen[f"{name}/record.json"] == 1
        assert seen[f"{name}/metrics.json"] == 1
        assert seen[f"{name}/config.yaml"] == 2
        # The page's plot needs the rows: they are counted, then parsed.
        assert seen[f"{name}/steps.csv"] == (1 if form else 3)


def test_a_shown_picture_is_decoded_once_and_no_other_is(grid: Path, decoded: Counter[str]) -> None:
    assert main([str(grid), "--prompts", "2"]) == 0
    assert decoded == Counter({f"{run}/{i:02d}.png": 1 for run in ("0ref", "1", "2") for i in (0, 1)})


def test_past_the_budget_one_row_is_decoded_at_most(
    grid: Path, decoded: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures.PromptRow, "bytes", property(lambda row: 10))
    runs = pictures.prompt_rows(collect(find_folders([grid])), grid, 16, budget=35)
    assert ([row.index for row in runs.rows], runs.of) == ([0, 1, 2], PROMPTS)
    assert max(decoded.values()) == 1
    assert {key.partition("/")[2] for key in decoded} == {"00.png", "01.png", "02.png", "03.png"}


def test_a_page_has_no_more_pictures_than_a_reader_waits_for(
    grid: Path, decoded: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MOST", 7)  # two rows of three, and no third
    runs = collect(find_folders([grid]))
    assert [row.index for row in pictures.prompt_rows(runs, grid, 16).rows] == [0, 1]
    assert len(decoded) == 6
    assert len(pictures.prompt_rows(runs, grid, 16, limit=PROMPTS).rows) == PROMPTS


def test_without_pictures_in_the_form_none_is_decoded(grid: Path, decoded: Counter[str]) -> None:
    for form in ("--markdown", "--csv", "--latex", "--table"):
        assert main([str(grid), form]) == 0
    assert not decoded
