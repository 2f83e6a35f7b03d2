"""Files of links: YAML, or JSON, which is YAML too; those that ship are known by their name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from otil_exp.links.link import Curve, Links

SHIPPED = Path(__file__).with_name("shipped")


def shipped() -> list[str]:
    """Names of the links that ship."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def read_links(name_or_file: str | Path) -> Links:
    """The links of a file, or those that ship under a name.

    Raises ValueError, with what to type, for what is neither, and for a file that does not hold links.
    """
    path = Path(name_or_file)
    if str(name_or_file) in shipped():
        path = SHIPPED / f"{name_or_file}.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"links {name_or_file}: no such file ({error.strerror}), nor a name of those that ship: use "
            f"{', '.join(shipped())}, or a file that `otil-selftest --device cuda --links FILE` wrote"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"links {path}: no YAML or JSON ({' '.join(str(error).split())})") from error
    try:
        return _links(content)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error} is not said" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"links {path}: {reason}; it needs {', '.join(_names(Links))}, as {SHIPPED} has") from error


def write_links(links: Links, path: Path) -> None:
    """Write a file of links that `read_links` reads."""
    curves = [
        {"operation": one.operation, "world_size": one.world_size, "points": [list(point) for point in one.points]}
        for one in links.curves
    ]
    content = {name: getattr(links, name) for name in _names(Links)} | {"curves": curves}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def _links(content: Any) -> Links:
    values = _known(content, Links)
    curves = [_known(curve, Curve) for curve in values["curves"]]
    made = [
        Curve(
            operation=str(curve["operation"]),
            world_size=_whole(curve["world_size"]),
            points=tuple((_whole(size), float(seconds)) for size, seconds in curve["points"]),
        )
        for curve in curves
    ]
    if not isinstance(values["measured"], bool):
        raise TypeError(f"measured is {values['measured']!r}: use true or false")
    return Links(
        name=str(values["name"]),
        source=str(values["source"]),
        date=str(values["date"]),
        measured=values["measured"],
        curves=tuple(made),
        host_s=float(values.get("host_s", 0.0)),
    )


def _whole(value: Any) -> int:
    """A whole number, also as 1e6, which is a word in YAML."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value} is no whole number, as bytes and ranks are")
    return int(number)


def _known(content: Any, of: Any) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise TypeError(f"{of.__name__} is {str(content)[:40]!r} and no set of named values")
    if unknown := set(content) - set(_names(of)):
        raise ValueError(f"{', '.join(sorted(map(str, unknown)))} is no field of {of.__name__}")
    return content


def _names(of: Any) -> list[str]:
    return [one.name for one in fields(of)]
