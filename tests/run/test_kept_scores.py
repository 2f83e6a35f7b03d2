"""A scoring that is interrupted goes on where it stopped; what it writes a picture does not grow with their number."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.config import MetricsConfig
from otil_exp.run.execution import execute
from otil_exp.run.scores import Share, score_run
from otil_exp.run_folder.folder import RunFolder
from run.test_scores import ALL, noise, run_folder

FEW = MetricsConfig(psnr=True, seams=True, extractors=["shapes_classifier"])


class Killed(BaseException):
    """As SIGKILL: nothing is tidied up."""


def scored(folder: RunFolder, settings: MetricsConfig = FEW, stop_after: int | None = None) -> int:
    """Score, and be killed after so many pictures; how many were scored."""
    count = 0

    def on_picture() -> None:
        nonlocal count
        count += 1
        if count == stop_after:
            raise Killed

    try:
        score_run(folder, settings, Share.all(), on_picture=on_picture)
    except Killed:
        assert folder.metrics == {}
    return count


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    run_folder(tmp_path / "ref", "reference", noise, pictures=5)
    run_folder(tmp_path / "own", "otil", lambda i: noise(100 + i), pictures=5)
    return tmp_path


def test_it_goes_on_where_it_stopped_with_the_same_values_to_the_last_bit(grid: Path) -> None:
    shutil.copytree(grid / "own", grid / "twin")
    own, twin = RunFolder(grid / "own"), RunFolder(grid / "twin")
    assert [scored(own, ALL, stop_after=2), scored(own, ALL, stop_after=1), scored(own, ALL)] == [2, 1, 2]
    assert scored(twin, ALL) == 5
    assert own.metrics == twin.metrics
    assert own.metrics["frechet_shapes/orig"]["n"] == 5
    assert not (own.path / "scores").exists()


def test_a_score_whose_line_was_cut_is_made_again(grid: Path) -> None:
    own = RunFolder(grid / "own")
    scored(own, stop_after=3)
    [file] = (own.path / "scores").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert scored(own) == 3


def test_a_picture_that_was_made_again_is_scored_again_and_so_is_one_beside_another_reference(grid: Path) -> None:
    own = RunFolder(grid / "own")
    scored(own, stop_after=4)
    own.write_image(0, noise(7))
    RunFolder(grid / "ref").write_image(1, noise(8))
    assert scored(own) == 3


@pytest.mark.parametrize("other", [MetricsConfig(psnr=True), ALL])
def test_scores_of_other_settings_are_not_taken(grid: Path, other: MetricsConfig) -> None:
    own = RunFolder(grid / "own")
    scored(own, stop_after=4)
    assert scored(own, other) == 5


def test_what_is_kept_of_a_picture_does_not_grow_with_their_number(tmp_path: Path) -> None:
    """Pictures of 64 x 64 with 64 float32 features on either side: some kB."""
    sizes = []
    for pictures in (4, 16):
        grid = tmp_path / str(pictures)
        run_folder(grid / "ref", "reference", noise, pictures=pictures)
        own = run_folder(grid / "own", "otil", lambda i: noise(100 + i), pictures=pictures)
        scored(own, stop_after=pictures - 1)
        [file] = (own.path / "scores").iterdir()
        sizes.append(file.stat().st_size / (pictures - 1))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
    assert sizes[1] < 8_000


def test_a_run_writes_nothing_but_its_picture_and_its_steps_for_each_picture(
    composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither record.json nor metrics.json, which hold an entry a prompt, is written again between two pictures."""
    written: list[tuple[str, int]] = []
    write_json, write_image = RunFolder._write_json, RunFolder.write_image

    def note_json(self: RunFolder, name: str, content: dict[str, Any]) -> None:
        write_json(self, name, content)
        written.append((name, (self.path / name).stat().st_size))

    def note_image(self: RunFolder, prompt: int, image: Any) -> None:
        write_image(self, prompt, image)
        written.append((f"picture, steps.csv {(self.path / 'steps.csv').stat().st_size // 10_000}", prompt))

    monkeypatch.setattr(RunFolder, "_write_json", note_json)
    monkeypatch.setattr(RunFolder, "write_image", note_image)
    few = ("num_inference_steps=2", "warmup_steps=0", "prompts.limit=4", "metrics=none", "height=64", "width=64")
    execute([prepare(composed("preset=reference", "device=cpu", *few))], hosted=False)
    names = [name for name, _ in written]
    first, last = names.index("picture, steps.csv 0"), len(names) - names[::-1].index("picture, steps.csv 0")
    assert names[first:last] == ["picture, steps.csv 0"] * 4
