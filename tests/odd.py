"""Odd values for every field of a schema, made from the schema: a new field is tried, too."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from otil_exp.config import MethodConfig

NUMBERS = (-1, 0, 1, 7, 10**6, 2**63, 2**64, 1.5, "abc", None, [])
FLOATS = (*NUMBERS, float("nan"), float("inf"), float("-inf"), 1e308)
WORDS = ("", " ", "..", "a/b", "a [b] c", "/nonexistent", "\t\n", "1", "x" * 300, None, [])
LISTS = (None, [], "abc", ["abc"], ["abc", "abc"], [""], [None], [["a"]], [{"a": 1}], {"a": 1})
OF_CHOICES = ("abc", "", 0, None, [])
GROUPS = (None, "abc", 1, [], {"zzz": 1})


def odd_values(kind: Any) -> tuple[Any, ...]:
    """Values to try for a field of this type, right ones among them."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        found = [value for one in inside if one is not type(None) for value in odd_values(one)]
        return tuple(value for i, value in enumerate(found) if repr(value) not in map(repr, found[:i]))
    if origin is list:
        return LISTS
    if origin is dict:
        return GROUPS
    if issubclass(kind, Enum):
        return (*(one.name for one in kind), *OF_CHOICES)
    return {bool: (True, False, *OF_CHOICES), int: NUMBERS, float: FLOATS, str: WORDS}[kind]


def typed_fields(schema: type, prefix: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every setting of a dataclass as it is typed, with values to try; groups and their settings alike."""
    hints = typing.get_type_hints(schema)
    for field in fields(schema):
        kind, key = hints[field.name], f"{prefix}{field.name}"
        group = next((one for one in (kind, *typing.get_args(kind)) if is_dataclass(one)), None)
        yield key, GROUPS if group else odd_values(kind)
        if group and group is not MethodConfig:
            yield from typed_fields(group, f"{key}.")
