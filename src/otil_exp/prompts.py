"""Prompt sets: from the config, a file (text, JSONL, TSV, CSV), COCO captions, or random scenes of the shapes model."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from otil_exp.choices import Caption, PromptSource
from otil_exp.config import PromptsConfig

COLUMNS = ("Prompt", "prompt", "caption", "text")
"""Columns or keys that hold the prompt when prompts.column is not given; PartiPrompts has Prompt."""

SHAPES_CAPTIONS, SHAPES_SEED = 200, 1_000_003
"""How many captions prompts=shapes has, and the seed that draws them from the scenes kept out of training."""


_COCO_FILES = {Caption.first: "captions_val2017.json", Caption.rotating: "dataset_coco.json"}
"""Files of COCO's captions as published: its own, and Karpathy's."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a set."""

    index: int
    """Position in the whole set, before limit and shard; names the picture."""

    text: str

    seed: int
    """Seed of the initial noise."""


def load_prompts(config: PromptsConfig, seed: int) -> list[Prompt]:
    """The prompts a run makes pictures of, in order; picture i starts from seed + i.

    Raises ValueError when the set is empty, a file is missing or not UTF-8, or limit or shard make no sense.
    """
    texts = _READERS[config.source](config)
    if not texts:
        raise ValueError(f"prompts.source={config.source.name}: {_where(config)} holds no prompts")
    if config.source is not PromptSource.file:  # whose lines are named
        for index, text in enumerate(texts):
            _check_text(text, f"{_where(config)}, prompt {index}")
    if config.limit is not None:
        if config.limit < 1:
            raise ValueError(f"prompts.limit={config.limit}: use 1 or more, or null for all {len(texts)}")
        texts = texts[: config.limit]
    prompts = [Prompt(index=i, text=text, seed=seed + i) for i, text in enumerate(texts)]
    if config.shard is None:
        return prompts
    which, of = _shard(config.shard)
    if which >= len(prompts):
        raise ValueError(f"prompts.shard={config.shard}: only {len(prompts)} prompts; use at most that many shards")
    return prompts[which::of]


def _shard(text: str) -> tuple[int, int]:
    which, _, of = text.partition("/")
    if not (which.isdecimal() and of.isdecimal() and int(which) < int(of)):
        raise ValueError(f"prompts.shard={text}: use i/n with 0 <= i < n, such as prompts.shard=0/4")
    return int(which), int(of)


def _from_list(config: PromptsConfig) -> list[str]:
    return list(config.texts)


def _from_shapes(config: PromptsConfig) -> list[str]:
    from otil_exp.shapes.scenes import held_out_captions  # late: torch is loaded only where scenes are drawn

    return held_out_captions(SHAPES_CAPTIONS, Random(SHAPES_SEED))


def _from_file(config: PromptsConfig) -> list[str]:
    text = _read(config)
    rows = _table if Path(str(config.path)).suffix.lower() in (".csv", ".tsv") else _listed
    found = list(rows(text, config))
    for line, prompt in found:
        _check_text(prompt, _at(config, line))
    return [prompt for _, prompt in found]


def _listed(text: str, config: PromptsConfig) -> Iterator[tuple[int, str]]:
    """The prompts of a text or JSONL file, with their lines.

    Lines end at line feeds alone: U+2028, NEL, VT and FF, at which str.splitlines ends one too, are text.
    """
    json_lines = Path(str(config.path)).suffix.lower() in (".jsonl", ".json")
    for line, words in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if words.strip():
            yield line, _pick(_row(words, line, config), line, config, none="null") if json_lines else words.strip()


def _table(text: str, config: PromptsConfig) -> Iterator[tuple[int, str]]:
    """The prompts of a CSV or TSV file whose first row names the columns, with the lines where their rows end."""
    # Quotes are part of a prompt in TSV, as PartiPrompts has it.
    tsv: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    dialect = tsv if Path(str(config.path)).suffix.lower() == ".tsv" else {"strict": True}
    # The csv module takes a carriage return for the end of a row as well; its own bound of a field is 131,072.
    rows = csv.DictReader(StringIO(text, newline=""), **dialect)
    before = csv.field_size_limit(len(text) + 1)
    try:
        for row in rows:
            if None in row:
                raise ValueError(
                    f"{_at(config, rows.line_num)}: more fields than the first row has columns: put a prompt with the "
                    "separator in it in quotes (CSV), or leave the separator out (TSV)"
                )
            yield rows.line_num, _pick(row, rows.line_num, config, none="nothing, the row is short")
    except csv.Error as error:
        raise ValueError(f"{_at(config, rows.reader.line_num)}: not readable as a table ({error})") from error
    finally:
        csv.field_size_limit(before)


def _from_coco(config: PromptsConfig) -> list[str]:
    """One caption an image, in an order that is fixed, so that seed = index is too."""
    file = _path(config)
    captions = _captions(str(config.path), file.stat().st_mtime_ns if file.is_file() else None)
    if config.caption is Caption.first:
        return [own[0] for own in captions]
    return [own[index % len(own)] for index, own in enumerate(captions)]


@lru_cache(maxsize=1)  # every cell of a grid asks, and the published file takes seconds
def _captions(path: str, changed: int | None) -> list[list[str]]:
    """The captions of every image of a COCO file; changed: when it was, so that another content is read anew."""
    try:
        content = json.loads(_read(PromptsConfig(source=PromptSource.coco, path=path)))
        captions = _by_annotation(content["annotations"]) if "annotations" in content else _by_image(content["images"])
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"prompts.path={path}: not a COCO captions file ({error}); use such as captions_val2017.json"
        ) from error
    if not all(captions):
        raise ValueError(
            f"prompts.path={path}: image {captions.index([])} of the validation part, counted from 0, has no "
            "captions; use dataset_coco.json as published"
        )
    return captions


def _by_annotation(annotations: list[dict[str, Any]]) -> list[list[str]]:
    """COCO's own form: captions by ascending annotation id, of images by ascending image id."""
    found: dict[int, list[tuple[int, str]]] = {}
    for annotation in annotations:
        found.setdefault(annotation["image_id"], []).append((annotation["id"], annotation["caption"].strip()))
    return [[caption for _, caption in sorted(found[image])] for image in sorted(found)]


def _by_image(images: list[dict[str, Any]]) -> list[list[str]]:
    """Karpathy's form (dataset_coco.json): the images of the validation part and their captions as they stand."""
    return [[one["raw"].strip() for one in image["sentences"]] for image in images if image["split"] == "val"]


_READERS: dict[PromptSource, Callable[[PromptsConfig], list[str]]] = {
    PromptSource.list: _from_list,
    PromptSource.shapes: _from_shapes,
    PromptSource.file: _from_file,
    PromptSource.coco: _from_coco,
}


def _where(config: PromptsConfig) -> str:
    return f"prompts.path={config.path}" if config.path else "prompts.texts"


def _path(config: PromptsConfig) -> Path:
    """The user's file. Raises ValueError, with what to type, if none is named."""
    if config.path is None:
        such = {PromptSource.file: "prompts.txt", PromptSource.coco: _COCO_FILES[config.caption]}[config.source]
        raise ValueError(
            f"prompts.source={config.source.name} reads the prompts from a file, and prompts.path names none: add "
            f"prompts.path=FILE, such as prompts.path={such}"
        )
    return Path(config.path).expanduser()


def _read(config: PromptsConfig) -> str:
    try:
        return _path(config).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"prompts.path={config.path} is not UTF-8 (byte {error.start}); convert it: iconv -t UTF-8 {config.path}"
        ) from error
    except OSError as error:
        raise ValueError(f"prompts.path={config.path} cannot be read: {error.strerror}") from error


def _at(config: PromptsConfig, line: int) -> str:
    return f"prompts.path={config.path}, line {line}"


def _row(text: str, line: int, config: PromptsConfig) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{_at(config, line)}: not one JSON object a line ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"{_at(config, line)}: not one JSON object a line (found {text[:40]!r})")
    return row


def _pick(row: dict[str, Any], line: int, config: PromptsConfig, none: str) -> str:
    """The prompt of a row; none: what a value that is None says. Raises ValueError, with the line, if there is none."""
    names = (config.column,) if config.column else COLUMNS
    there = [name for name in names if name in row]
    if not there:
        raise ValueError(
            f"{_at(config, line)}: no column {' or '.join(names)}; use prompts.column= one of {', '.join(row)}"
        )
    value = row[there[0]]
    if not isinstance(value, str) or not value.strip():
        found = none if value is None else f"{value!r}, which is no prompt"
        raise ValueError(f"{_at(config, line)}: {there[0]} holds {found}; write the prompt there, or delete the row")
    return value.strip()


def _check_text(text: str, where: str) -> None:
    """Raise ValueError for an empty prompt, and for characters that no tokenizer, log or terminal takes."""
    if not text.strip():
        raise ValueError(f"{where}: the prompt is empty; write it there, or leave it out")
    half = any("\ud800" <= character <= "\udfff" for character in text)  # as "\ud83d" in JSON, without its second half
    if half or "\0" in text:
        fault = "half a character (a lone surrogate)" if half else "a NUL character"
        raise ValueError(f"{where}: the prompt holds {fault}: {text[:60]!a}; write it anew, without")


def cut_short(prompts: Sequence[Prompt], tokenizer: Any) -> str | None:
    """What to warn of where prompts are longer than a text encoder reads; None where none is.

    tokenizer: of transformers, the pipeline's.
    """
    most = tokenizer.model_max_length
    lengths = {prompt.index: len(tokenizer(prompt.text, verbose=False).input_ids) for prompt in prompts}
    long = [index for index, length in lengths.items() if length > most]
    if not long:
        return None
    which = ", ".join(f"{index:02d}" for index in long[:10]) + (f" and {len(long) - 10} more" if len(long) > 10 else "")
    return (
        f"{'prompt' if len(long) == 1 else 'prompts'} {which}: longer than the {most} tokens that the model reads; "
        f"what follows them changes no picture"
    )
