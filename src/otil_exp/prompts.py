"""Prompt sets: from the config, a file (text, JSONL, TSV, CSV), COCO captions, or random scenes of the shapes model."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from otil_exp.choices import PromptSource
from otil_exp.config import PromptsConfig

COLUMNS = ("Prompt", "prompt", "caption", "text")
"""Columns or keys that hold the prompt when prompts.column is not given; PartiPrompts has Prompt."""

SHAPES_CAPTIONS, SHAPES_SEED = 200, 1_000_003
"""How many captions prompts=shapes has, and the seed that draws them from the scenes kept out of training."""


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
    if not texts or not all(text.strip() for text in texts):
        raise ValueError(f"prompts.source={config.source.name}: {_where(config)} holds no prompts (or an empty one)")
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
    suffix = Path(str(config.path)).suffix.lower()
    if suffix in (".jsonl", ".json"):
        return [_pick(_row(line, config), config) for line in text.splitlines() if line.strip()]
    if suffix == ".tsv":  # quotes are part of a prompt there, as PartiPrompts has it
        return [_pick(row, config) for row in csv.DictReader(StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)]
    if suffix == ".csv":
        return [_pick(row, config) for row in csv.DictReader(StringIO(text))]
    return [line.strip() for line in text.splitlines() if line.strip()]


def _from_coco(config: PromptsConfig) -> list[str]:
    """First caption (lowest annotation id) of each image, by ascending image id: fixed, so seed = index is too."""
    try:
        annotations = json.loads(_read(config))["annotations"]
        first: dict[int, tuple[int, str]] = {}
        for annotation in annotations:
            entry = (annotation["id"], annotation["caption"].strip())
            first[annotation["image_id"]] = min(first.get(annotation["image_id"], entry), entry)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"prompts.path={config.path}: not a COCO captions file ({error}); use such as captions_val2017.json"
        ) from error
    return [first[image][1] for image in sorted(first)]


_READERS: dict[PromptSource, Callable[[PromptsConfig], list[str]]] = {
    PromptSource.list: _from_list,
    PromptSource.shapes: _from_shapes,
    PromptSource.file: _from_file,
    PromptSource.coco: _from_coco,
}


def _where(config: PromptsConfig) -> str:
    return f"prompts.path={config.path}" if config.path else "prompts.texts"


def _read(config: PromptsConfig) -> str:
    if config.path is None:
        raise ValueError(f"prompts={config.source.name} needs a file: add prompts.path=FILE")
    try:
        return Path(config.path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"prompts.path={config.path} is not UTF-8 (byte {error.start}); convert it: iconv -t UTF-8 {config.path}"
        ) from error
    except OSError as error:
        raise ValueError(f"prompts.path={config.path} cannot be read: {error.strerror}") from error


def _row(line: str, config: PromptsConfig) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"prompts.path={config.path}: not one JSON object a line ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"prompts.path={config.path}: not one JSON object a line (found {line[:40]!r})")
    return row


def _pick(row: dict[str, Any], config: PromptsConfig) -> str:
    names = (config.column,) if config.column else COLUMNS
    for name in names:
        if row.get(name) is not None:
            return str(row[name]).strip()
    raise ValueError(
        f"prompts.path={config.path}: no column {' or '.join(names)}; "
        f"use prompts.column= one of {', '.join(map(str, row))}"
    )
