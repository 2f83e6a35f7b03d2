"""Pictures of captions in the order of their prompts, for both forms of the captions file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launchers.coco_pictures import link

from otil_exp.choices import Caption, PromptSource
from otil_exp.config import PromptsConfig
from otil_exp.prompts import load_prompts

COCO: dict[str, Any] = {
    "images": [
        {"id": 9, "file_name": "nine.jpg"},
        {"id": 3, "file_name": "three.jpg"},
        {"id": 5, "file_name": "5.jpg"},
    ],
    "annotations": [
        {"image_id": 9, "id": 4, "caption": "nine, second"},
        {"image_id": 9, "id": 2, "caption": "nine, first"},
        {"image_id": 3, "id": 7, "caption": "three, first"},
        {"image_id": 3, "id": 8, "caption": "three, second"},
    ],
}
KARPATHY: dict[str, Any] = {
    "images": [
        {"split": "train", "filename": "t.jpg", "sentences": [{"raw": "not this"}]},
        {"split": "val", "filename": "nine.jpg", "sentences": [{"raw": "nine, first"}, {"raw": "nine, second"}]},
        {"split": "val", "filename": "three.jpg", "sentences": [{"raw": "three, first"}, {"raw": " three, second"}]},
        {"split": "test", "filename": "u.jpg", "sentences": [{"raw": "nor this"}]},
    ],
    "dataset": "coco",
}


@pytest.mark.parametrize(
    ("content", "first", "rotating", "pictures"),
    [
        # By hand: picture i takes caption i mod 2.
        (COCO, ["three, first", "nine, first"], ["three, first", "nine, second"], ["three.jpg", "nine.jpg"]),
        (KARPATHY, ["nine, first", "three, first"], ["nine, first", "three, second"], ["nine.jpg", "three.jpg"]),
    ],
)
def test_captions_and_pictures_are_in_one_order(
    tmp_path: Path, content: dict[str, Any], first: list[str], rotating: list[str], pictures: list[str]
) -> None:
    captions, folder = tmp_path / "captions.json", tmp_path / "val"
    captions.write_text(json.dumps(content), encoding="utf-8")
    folder.mkdir()
    for name in ("nine.jpg", "three.jpg"):
        (folder / name).write_text(name)
    for caption, wanted in ((Caption.first, first), (Caption.rotating, rotating)):
        config = PromptsConfig(source=PromptSource.coco, path=str(captions), caption=caption)
        prompts = load_prompts(config, seed=0)
        assert [(prompt.text, prompt.seed) for prompt in prompts] == list(zip(wanted, (0, 1), strict=True))
    assert link(captions, folder, tmp_path / "gt", limit=5000) == 2
    linked = sorted((tmp_path / "gt").iterdir())
    assert [path.name for path in linked] == ["0000.jpg", "0001.jpg"]
    assert [path.read_text() for path in linked] == pictures


def test_pictures_that_are_not_there_are_counted_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text(json.dumps(KARPATHY), encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"2 of 2 pictures are not in .*, such as nine\.jpg"):
        link(tmp_path / "captions.json", tmp_path, tmp_path / "gt", limit=5000)
    assert not (tmp_path / "gt").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"annotations": [{"image_id": 1, "id": 2, "bbox": [0, 0]}], "images": []}', "not a COCO captions file"),
        ('[{"image_id": 1, "id": 2, "caption": "a"}]', "not a COCO captions file"),
        ('{"images": [', "not a COCO captions file"),
        ('{"images": [{"filename": "a.jpg", "split": "train"}]}', "no captions of validation pictures"),
    ],
)
def test_a_file_of_another_form_makes_no_folder(tmp_path: Path, content: str, sentence: str) -> None:
    """instances_val2014.json lists fewer images than the captions: its links would be of other prompts."""
    (tmp_path / "c.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=sentence):
        link(tmp_path / "c.json", tmp_path, tmp_path / "truth", limit=4)
    assert not (tmp_path / "truth").exists()
