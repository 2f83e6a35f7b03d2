"""What a user typed and Hydra cannot compose, or composes without anybody reading it: one sentence of what to type.

Hydra prints its exceptions itself, some of them as tracebacks and some with the advice to type a + that makes it accept
what nobody reads. HYDRA_FULL_ERROR, its documented variable, lets them through to whoever called it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from otil_exp.conf_tree import conf_folder, groups, options

FULL_ERROR = "HYDRA_FULL_ERROR"
"""Where a user has set it, the traceback is what is asked for."""

_composing = False


@contextmanager
def one_sentence() -> Iterator[None]:
    """Exit with one sentence where Hydra cannot compose what was typed; `composed` ends that."""
    global _composing
    if FULL_ERROR in os.environ:
        yield
        return
    os.environ[FULL_ERROR], _composing = "1", True
    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError, AttributeError) as error:
        words = sentence(error, get_args().overrides) if _composing else None
        composed()
        if words is None:
            raise
        sys.exit(words)
    finally:
        composed()


def composed() -> None:
    """All is composed: what fails from here on is Hydra's to show, and no rank or job inherits the variable."""
    global _composing
    if _composing:
        os.environ.pop(FULL_ERROR, None)
    _composing = False


def sentence(error: Exception, overrides: Sequence[str]) -> str | None:
    """What to type instead of the override that Hydra cannot compose; None where that is not what failed.

    error: Hydra's, OmegaConf's, or the ValueError, AssertionError or AttributeError that some overrides end in inside
    them.
    """
    try:
        parsed = [_parsed(text) for text in overrides]
    except ValueError as unreadable:
        return str(unreadable)
    # Each mistake has its exceptions: options of a folder that the user added (--config-dir) are none of ours to judge.
    if isinstance(error, MissingConfigException | ValueError):
        wrong = [_wrong_choice(override) for override in parsed]
    else:
        wrong = [_wrong_key(override, parsed) for override in parsed]
    if any(wrong):
        return next(filter(None, wrong))
    return tidy(error) if isinstance(error, (HydraException, OmegaConfBaseException)) else None


def tidy(error: Exception) -> str:
    """The words of Hydra and OmegaConf that concern the user, in one line."""
    said = [str(error), *([str(error.__cause__)] if isinstance(error.__cause__, OmegaConfBaseException) else [])]
    noise = ("full_key:", "object_type=", "See https://", "To append to your", "Config search path", "provider=")
    lines = [line.strip() for line in "\n".join(said).splitlines()]
    if lines[0].startswith(merging := "Error merging override "):
        lines[0] = lines[0].removeprefix(merging) + ":"
    return " ".join(line for line in lines if line and not line.startswith(noise))


def check_composed(config: DictConfig) -> None:
    """Raise ValueError, with what to type, for settings that nobody reads (+foo=1) and for those without a value.

    config: a composed cell, typed by the schema.
    """
    if unknown := list(_unknown(config)):
        raise ValueError("; ".join(_no_such(key, _choice(config)) for key in unknown))
    if nested := next(_nested(config), None):
        raise ValueError(f"{nested}: an entry of a list is one value, no list of its own; use such as [a, b]")
    try:
        missing = sorted(OmegaConf.missing_keys(config))
    except OmegaConfBaseException as error:
        raise ValueError(tidy(error)) from error
    if missing:
        whole = sorted({key.partition(".")[0] for key in missing if key.partition(".")[0] in groups()})
        advice = [f"{group}= one of {', '.join(options(group))}" for group in whole]
        advice += [f"{key}=VALUE" for key in missing if key.partition(".")[0] not in whole]
        raise ValueError(f"{', '.join(missing)}: no value (??? or taken away by ~); use {' and '.join(advice)}")


def check_cells(config: DictConfig, cells: Sequence[DictConfig]) -> None:
    """Exit with a sentence for a grid without cells, and for experiments whose own grids Hydra would pass over.

    config: what is common to the cells; cells: the composed ones, Hydra's own part with them.
    """
    composed()
    if not cells:
        sweeps = [text for text in config.hydra.overrides.task if _parsed(text).is_sweep_override()]
        hints = [f"{group}= one of {', '.join(options(group))}" for group in _groups_of(sweeps)]
        use = " and ".join(hints) or "a value"
        sys.exit(f"{' '.join(sweeps)}: no cell at all, since this matches nothing; use {use}")
    own = config.hydra.sweeper.params or {}
    for cell in cells:
        lost = [str(key) for key in cell.hydra.sweeper.params or {} if key not in own]
        if lost:
            name = cell.hydra.runtime.choices.experiment
            sys.exit(
                f"experiment={name} brings a grid of its own ({', '.join(lost)}), which counts where it is the only "
                f"experiment: type `otil-exp -m experiment={name}`, and the others in commands of their own"
            )


def _groups_of(texts: Sequence[str]) -> list[str]:
    return [group for text in texts if (group := _parsed(text).key_or_group) in groups()]


def _parsed(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        reason = next(line for line in str(error).splitlines() if not line.startswith("Error parsing"))
        key, equals, value = text.partition("=")
        use = f"quotes around the value and around all of it, '{key}=\"{value}\"'" if equals else "key=value"
        raise ValueError(f"{text}: cannot be read ({reason}); type {use}") from error


def _values(override: Override) -> list[Any]:
    """What is chosen: one value, or those of a sweep over a list."""
    if override.is_choice_sweep():
        return list(override.sweep_iterator())
    return [] if override.is_sweep_override() else [override.value()]


def _wrong_choice(override: Override) -> str | None:
    """The sentence for an option that a group does not have."""
    group = override.key_or_group
    if group not in groups() or override.package is not None or override.is_delete():
        return None
    known = options(group)
    for value in _values(override):
        if value is None and group == "experiment":
            continue
        if not isinstance(value, str) or value not in known:
            word = "null" if value is None else str(value)
            near = [name for name in known if word in name] or get_close_matches(word, known)
            use = f"use {' or '.join(near)}, of {', '.join(known)}" if near else f"use one of {', '.join(known)}"
            return f"{group}={word}: there is no such {group}; {use}{_by_value(group, value)}"
    return None


def _by_value(group: str, value: Any) -> str:
    """k.budget=16 for k=16: a group of one number may be given the number."""
    node = next(iter(_presets().values()))[group] if group in groups() and group != "experiment" else {}
    alone = isinstance(value, int | float) and not isinstance(value, bool) and len(node) == 1
    return f"; or {group}.{next(iter(node))}={value}" if alone else ""


def _wrong_key(override: Override, all_typed: Sequence[Override]) -> str | None:
    """The sentence for a setting that is not there, or not in the method that is chosen."""
    key = override.key_or_group
    if override.is_add() or override.package is not None or key in groups() or key.startswith("hydra"):
        return None
    chosen = [str(value) for typed in all_typed if typed.key_or_group == "preset" for value in _values(typed)]
    inside = [f"{key}.{name}" for value in _values(override) if isinstance(value, dict) for name in value]
    lacking = [
        (one, name)
        for one in (key, *inside)
        for name in chosen or [_default_preset()]
        if name in _presets() and not _has(_presets()[name], one)
    ]
    return _no_such(*lacking[0]) if lacking else None


def _no_such(key: str, preset: str | None) -> str:
    """Where a setting would be known, or what it may have been meant for."""
    having = [name for name, config in _presets().items() if _has(config, key)]
    if having:
        return f"{key}: preset={preset} has no such setting; use it with {' or '.join(f'preset={n}' for n in having)}"
    known = list(dict.fromkeys(known for config in _presets().values() for known in _keys(config)))
    last = {name.rpartition(".")[2]: name for name in reversed(known)}
    near = get_close_matches(key, known) or [last[name] for name in get_close_matches(key.rpartition(".")[2], last)]
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{key}: there is no such setting{meant} (`otil-exp --help` lists them all)"


@cache
def _presets() -> dict[str, DictConfig]:
    """Every preset composed, by name: what a key may be depends on the method."""
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return {name: compose("config", [f"preset={name}"]) for name in options("preset")}


@cache
def _default_preset() -> str:
    """The method of a command that names none."""
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return str(compose("config", [], return_hydra_config=True).hydra.runtime.choices.preset)


def _choice(config: DictConfig) -> str | None:
    name = OmegaConf.select(config, "preset.name", throw_on_missing=False)
    return None if name is None else str(name)


def _has(config: DictConfig, key: str) -> bool:
    """Whether a config has a setting, be it null or interpolated."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, DictConfig) or node._is_none() or node._is_missing() or part not in list(node):
            return False
        node = node._get_node(part)
    return True


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """All settings of a config, as they are typed."""
    for key in map(str, config):
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            yield from _keys(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _nested(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Settings that are lists of lists or of dicts, as they would be typed: OmegaConf takes them for lists of words."""
    for key in map(str, config):
        node = config._get_node(key)
        if not isinstance(node, DictConfig | ListConfig) or node._is_none() or node._is_missing():
            continue
        if isinstance(node, DictConfig):
            yield from _nested(node, f"{prefix}{key}.")
        elif any(isinstance(entry, DictConfig | ListConfig) for entry in node._iter_ex(resolve=False)):
            yield f"{prefix}{key}={node}"


def _unknown(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Keys that the schema lacks: Hydra adds those that begin with + or ++."""
    schema = OmegaConf.get_type(config)
    known = {field.name for field in fields(schema)} if is_dataclass(schema) else set(config)
    for key in map(str, config):
        if key not in known:
            yield f"{prefix}{key}"
            continue
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            yield from _unknown(node, f"{prefix}{key}.")
