"""Prompt sets: what is read, in which order, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from composing import Typed
from otil_exp.choices import Caption, PromptSource
from otil_exp.config import PromptsConfig
from otil_exp.prompts import Prompt, cut_short, load_prompts


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
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": "cut \\ud83d"}\n', {}, "line 2: the prompt holds half a character"),
        ("p.jsonl", '{"prompt": "a"}\n\n{"prompt": null}\n', {}, "line 3: prompt holds null"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ["b"]}\n', {}, "line 2: prompt holds ['b'], which is no prompt"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": " "}\n', {}, "line 2: prompt holds ' ', which is no prompt"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": "b"\n', {}, "line 2: not one JSON object a line"),
        ("p.jsonl", "[" * 100_000 + "\n", {}, "line 1: not one JSON object a line"),
        ("p.txt", "a\nb\0c\n", {}, "line 2: the prompt holds a NUL character"),
        ("p.csv", "x,prompt\n1,a\n2\n", {}, "line 3: prompt holds nothing, the row is short"),
        ("p.tsv", "x\tprompt\n1\ta\n2\n", {}, "line 3: prompt holds nothing, the row is short"),
        ("p.csv", "prompt,x\na vase, white,1\n", {}, "line 2: more fields than the first row has columns"),
        ("p.csv", 'prompt,x\n"never closed,1\n', {}, "line 2: not readable as a table"),
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


def karpathy(*captions: list[str], split: str = "val") -> str:
    """dataset_coco.json of images with these captions, behind one of another part."""
    images = [{"split": split, "sentences": [{"raw": caption} for caption in own]} for own in captions]
    return json.dumps({"images": [{"split": "train", "sentences": [{"raw": "other"}]}, *images]})


@pytest.mark.parametrize("caption", Caption)
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (karpathy(["a"], []), "image 1 of the validation part, counted from 0, has no captions"),
        (karpathy(["a"], [" ", " "]), "prompt 1: the prompt is empty"),
        (karpathy(["a"], split="test"), "holds no prompts"),
        ('{"annotations": [{"image_id": 1, "id": 2, "bbox": [0, 0]}]}', "not a COCO captions file ('caption')"),
        ('[{"image_id": 1, "id": 2, "caption": "a"}]', "not a COCO captions file"),
        ('{"images": [', "not a COCO captions file"),
    ],
)
def test_captions_that_are_not_whole_are_refused_with_a_sentence(
    tmp_path: Path, content: str, sentence: str, caption: Caption
) -> None:
    path = tmp_path / "captions.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=".") as refused:
        load_prompts(PromptsConfig(source=PromptSource.coco, path=str(path), caption=caption), seed=0)
    assert sentence in str(refused.value)


def test_captions_are_read_once_for_all_cells_and_anew_when_the_file_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    original = Path.read_text

    def counted(path: Path, *arguments: str, **more: str) -> str:
        read.append(path)
        return original(path, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    path = tmp_path / "captions.json"
    for time_ns, caption in ((1_000_000_000, "a"), (2_000_000_000, "b")):
        path.write_text(karpathy([caption]))
        os.utime(path, ns=(time_ns, time_ns))
        for one in Caption:
            found = load_prompts(PromptsConfig(source=PromptSource.coco, path=str(path), caption=one), seed=0)
            assert [prompt.text for prompt in found] == [caption]
    assert read == [path, path]


@pytest.mark.parametrize(
    ("choice", "such"),
    [("file", "prompts.txt"), ("coco", "captions_val2017.json"), ("coco_karpathy", "dataset_coco.json")],
)
def test_a_missing_path_says_what_to_add(typed: Typed, choice: str, such: str) -> None:
    """And names no other choice than the one that was typed."""
    with pytest.raises(ValueError, match=f"add prompts.path=FILE, such as prompts.path={such}") as refused:
        load_prompts(typed(f"prompts={choice}").prompts, seed=0)
    assert "prompts=" not in str(refused.value)


def test_a_path_that_is_not_there_is_named() -> None:
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


ODD = "a\u2028b\u0085c\vd\fe\x1cf\u2029g"
"""What str.splitlines takes for seven lines; none of it ends a line of a file."""


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    """Four prompts stay four, and the seeds of those behind stay theirs."""
    assert texts(file(tmp_path / "p.txt", f"one\n{ODD}\r\nthree\nfour")) == ["one", ODD, "three", "four"]
    lines = "".join(json.dumps({"prompt": text}, ensure_ascii=False) + "\n" for text in ("one", ODD, "three"))
    assert texts(file(tmp_path / "p.jsonl", lines)) == ["one", ODD, "three"]
    assert texts(file(tmp_path / "p.csv", f'prompt\none\n"{ODD}"\nthree\n')) == ["one", ODD, "three"]
    assert texts(file(tmp_path / "p.tsv", f"prompt\none\n{ODD}\nthree\n")) == ["one", ODD, "three"]


def test_a_field_may_be_longer_than_131072_characters(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit()
    for name in ("p.csv", "p.tsv"):
        assert [len(text) for text in texts(file(tmp_path / name, "prompt\n" + "x" * 200_000 + "\n"))] == [200_000]
    assert csv.field_size_limit() == before


def test_what_is_typed_is_checked_too() -> None:
    with pytest.raises(ValueError, match="prompts.texts, prompt 1: the prompt holds half a character"):
        load_prompts(PromptsConfig(source=PromptSource.list, texts=["a", "b\ud83d"]), seed=0)


def test_long_prompts_are_warned_of_once_in_our_words(caplog: pytest.LogCaptureFixture) -> None:
    """A word of the shapes model is a token; two more begin and end a prompt, 32 in all."""
    from transformers import CLIPTokenizer

    from otil_exp.shapes import PIPELINE_FOLDER

    tokenizer = CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
    fits = Prompt(index=0, text=" ".join(["vase"] * 30), seed=0)
    assert cut_short([fits], tokenizer) is None
    warning = cut_short([fits, *(Prompt(index=i, text="vase " * 2000, seed=0) for i in (3, 7))], tokenizer)
    assert warning == (
        "prompts 03, 07: longer than the 32 tokens that the model reads; what follows them changes no picture"
    )
    assert caplog.text == ""
