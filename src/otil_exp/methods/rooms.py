"""Which rooms there are, and which one a config belongs to; loads of a room no more than is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from otil_exp.config import ExperimentConfig, MethodConfig

if TYPE_CHECKING:
    from otil_exp.methods.method import Method

_HERE = "otil_exp.methods"


@cache
def families() -> dict[str, type[MethodConfig]]:
    """The config of every family by its room's name: what conf/preset/*.yaml stands on."""
    import otil_exp.methods

    rooms = [module.name for module in iter_modules(otil_exp.methods.__path__) if module.ispkg]
    return {room: _config_of(room) for room in rooms}


def room_of(preset: MethodConfig) -> str:
    """Name of the room that a method's settings belong to. Raises ValueError for settings that stand on none."""
    for room, family in families().items():
        if type(preset) is family:
            return room
    raise ValueError(
        f"preset={preset.name} stands on no family of methods: begin its file with `defaults: [family/ROOM@_here_, "
        f"_self_]`, ROOM one of {', '.join(families())}"
    )


def method_of(config: ExperimentConfig) -> Method[Any]:
    """What the family of a config's method says of it."""
    method: Method[Any] = import_module(f"{_HERE}.{room_of(config.preset)}.rules").METHOD
    return method


def step_of(config: ExperimentConfig) -> Any:
    """The module that has the family's step on a rank; loads diffusers."""
    return import_module(f"{_HERE}.{room_of(config.preset)}.step")


def _config_of(room: str) -> type[MethodConfig]:
    module = import_module(f"{_HERE}.{room}.config")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, MethodConfig) and value.__module__ == module.__name__
    ]
    assert len(own) == 1, f"{module.__name__} has one config of the family, not {own}"
    return own[0]
