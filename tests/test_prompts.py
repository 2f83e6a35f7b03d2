"""Prompt sets: what is read, in which order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from composing import Typed
from otil_exp.choices import PromptSource
from otil_exp.config import PromptsConfig
from otil_exp.prompts import Prompt, load_prompts


def file(path: Path, content: str | bytes, **settings: object) -> PromptsConfig:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return PromptsConfig(source=PromptSource.file, path=str(path), **settings)  # type: ignore[arg-type]


def texts(config: PromptsConfig) -> list[str]:
    return [prompt.text for prompt in load_prompts(config, seed=0)]


def test_index_and_seed_count_through_the_whole_set() -> None:
    config = PromptsConfig(source=PromptSource.list, texts=["a", "b", "c", "d", "e"], limit=4, shard="1/2")
    assert load_prompts(config, seed=10) == [Prompt(1, "b", 11), Prompt(3, "d", 13)]


def test_a_text_file_has_one_prompt_a_line(tmp_path: Path) -> None:
    assert texts(file(tmp_path / "p.txt", "\ufeffa vase\r\n\n  zwei Vasen – größer\n")) == [
        "a vase",
        "zwei Vasen – größer",
    ]


def test_jsonl_and_partiprompts_tsv(tmp_path: Path) -> None:
    assert texts(file(tmp_path / "p.jsonl", '{"prompt": "a"}\n{"caption": "b"}\n')) == ["a", "b"]
    tsv = 'Prompt\tCategory\tChallenge\tNote\na "quoted" sign\tWorld\tBasic\t\n'
    assert texts(file(tmp_path / "p.tsv", tsv)) == ['a "quoted" sign']
    assert texts(file(tmp_path / "p.csv", 'prompt,x\n"a vase, white",1\n')) == ["a vase, white"]
    assert texts(file(tmp_path / "q.tsv", "x\ty\nfirst\tsecond\n", column="y")) == ["second"]


def test_coco_takes_the_first_caption_of_each_image_by_image_id(tmp_path: Path) -> None:
    annotations = [
        {"image_id": 9, "id": 4, "caption": "nine, later"},
        {"image_id": 9, "id": 2, "caption": " nine "},
        {"image_id": 3, "id": 7, "caption": "three"},
    ]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"annotations": annotations}))
    config = PromptsConfig(source=PromptSource.coco, path=str(path))
    assert load_prompts(config, seed=0) == [Prompt(0, "three", 0), Prompt(1, "nine", 1)]


@pytest.mark.parametrize(
    ("name", "content", "settings", "sentence"),
    [
        ("p.txt", "", {}, "holds no prompts"),
        ("p.txt", " \n\n", {}, "holds no prompts"),
        ("p.txt", b"caf\xe9\n", {}, "not UTF-8 (byte 3)"),
        ("p.jsonl", "not json\n", {}, "JSON object a line"),
        ("p.jsonl", "[1]\n", {}, "JSON object a line"),
        ("p.tsv", "x\ty\n1\t2\n", {}, "prompts.column= one of x, y"),
        ("p.txt", "a\n", {"limit": 0}, "prompts.limit=0"),
        ("p.txt", "a\n", {"shard": "2/2"}, "prompts.shard=0/4"),
        ("p.txt", "a\n", {"shard": "1/2"}, "only 1 prompts"),
        ("p.txt", "a\n", {"shard": "\u00b2/3"}, "prompts.shard=0/4"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(
    tmp_path: Path, name: str, content: str | bytes, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=".") as refused:
        load_prompts(file(tmp_path / name, content, **settings), seed=0)
    assert sentence in str(refused.value)


def test_a_missing_path_says_what_to_add() -> None:
    with pytest.raises(ValueError, match="add prompts.path=FILE"):
        load_prompts(PromptsConfig(source=PromptSource.file), seed=0)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        load_prompts(PromptsConfig(source=PromptSource.coco, path="/nowhere.json"), seed=0)


def test_shapes_captions_are_fixed_and_kept_out_of_training() -> None:
    from otil_exp.shapes.scenes import is_held_out, parse

    config = PromptsConfig(source=PromptSource.shapes, limit=30)
    prompts = load_prompts(config, seed=0)
    assert prompts == load_prompts(config, seed=0)
    assert len(prompts) == 30
    assert all(is_held_out(parse(prompt.text)) for prompt in prompts)
    assert len(load_prompts(PromptsConfig(source=PromptSource.shapes), seed=0)) == 200


def test_the_demo_speaks_the_words_of_the_shapes_model(typed: Typed) -> None:
    """Ten prompts, each one scene; 05 is the vase on a flat field."""
    from otil_exp.shapes.scenes import parse

    prompts = load_prompts(typed().prompts, seed=0)
    assert len(prompts) == 10
    assert all(parse(prompt.text) for prompt in prompts)
    assert "vase" in prompts[5].text
    assert "seamless pale grey background" in prompts[5].text
