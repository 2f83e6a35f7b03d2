"""What a compiled graph depends on, as a key: code, versions, the device, and how modules and tensors are made.

Not on the values of tensors, nor on anything of the process: ranks of a half of the batch get the same key.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch
from diffusers.configuration_utils import FrozenDict
from torch import distributed as dist
from torch import nn

LIBRARIES = ("diffusers", "transformers", "peft", "triton")
"""Whose code is in graphs; diffusers' layers go by what else is there."""

TRACED = ("rank_unet", "stages", "choices.py")
"""Where in this package the code of graphs lies."""

Plain = bool | int | float | complex | str | bytes | torch.dtype | torch.device | torch.layout | torch.memory_format


def graph_key(function: Callable[..., Any], *arguments: Any, depends_on: Any = None) -> str:
    """32 hex digits of what the graph of a function depends on. depends_on: what else.

    A class names in `not_in_graphs` those attributes of its objects that no graph depends on.
    """
    device = next(tensor.device for tensor in _tensors(arguments))
    described = _Description()
    for part in (code_of_graphs(), _surroundings(device), function, arguments, depends_on):
        described.add(part)
    return described.digest()


class _Description:
    """Of a value and all it holds, hashed."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}
        """By id, when an object was met, and the object, which keeps others from getting its id."""
        self._classes: dict[type, tuple[dict[str, Any], list[str]]] = {}

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]

    def add(self, value: Any) -> None:
        if value is None or isinstance(value, Plain | Enum | torch.Size):
            self._say(repr(value))
        elif isinstance(value, type | ModuleType):
            self._say(_name(value))
        elif id(value) in self._seen:
            self._say("again", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_new(value)

    def _add_new(self, value: Any) -> None:
        if isinstance(value, nn.Parameter):
            self._say("parameter", *_of_tensor(value))
        elif isinstance(value, torch.Tensor):
            self._say("tensor", *_of_tensor(value), value.storage_offset())
            self.add(value.untyped_storage())  # of context several tensors may be parts of one
        elif isinstance(value, torch.UntypedStorage):
            self._say("storage")
        elif isinstance(value, list | tuple):  # alike, as diffusers has either of one setting
            self._add_all("list", value)
        elif isinstance(value, set | frozenset):
            self._add_all("set", sorted(map(repr, value)))
        elif isinstance(value, FrozenDict):
            settings = sorted(name for name in value if not name.startswith("_"))  # the others: whence it comes
            self._add_all("config", [(name, value[name]) for name in settings])
        elif isinstance(value, Mapping):
            self._add_all("mapping", value.items())
        elif isinstance(value, FunctionType):
            held = [cell.cell_contents for cell in value.__closure__ or ()]
            self._add_all(_name(value), (value.__code__, value.__defaults__, value.__kwdefaults__, held))
        elif isinstance(value, CodeType):
            self._add_all("code", (value.co_code, value.co_names, value.co_consts))
        elif isinstance(value, BuiltinFunctionType):
            self._add_all(_name(value), (value.__self__,))
        elif isinstance(value, MethodType):
            self._add_all("method", (value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._add_all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, dist.ProcessGroup):
            self._say(value.group_name)
        else:
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        """Its attributes, and those of its classes that are none of its own; what has neither says what it is."""
        kind = type(value)
        if kind not in self._classes:
            self._classes[kind] = _of_class(kind)
        of_class, slots = self._classes[kind]
        in_slots = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        held = {**of_class, **in_slots, **getattr(value, "__dict__", {})}
        left_out = getattr(value, "not_in_graphs", ())
        self._say(_name(kind))
        for name, one in held.items():
            if name not in left_out:
                self._say(name)
                self.add(one)
        self._say("end")
        if not held:
            self._say(repr(value).partition(" at 0x")[0])

    def _add_all(self, kind: str, values: Collection[Any]) -> None:
        self._say(kind, len(values))
        for value in values:
            self.add(value)

    def _say(self, *words: object) -> None:
        self._hash.update(repr(words).encode())


def _of_class(kind: type) -> tuple[dict[str, Any], list[str]]:
    """Plain attributes of a class and its bases, and the names of slots."""
    held = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    plain = {name: value for name, value in held.items() if value is None or isinstance(value, Plain | Enum)}
    slots = [name for name, value in held.items() if isinstance(value, MemberDescriptorType)]
    return {name: value for name, value in plain.items() if not name.startswith("__")}, slots


def _of_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    layout = [(size, stride if size > 1 else 0) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return layout, tensor.dtype, str(tensor.device), tensor.requires_grad


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def _tensors(value: Any) -> list[torch.Tensor]:
    """Tensors among arguments, or in the fields of one."""
    found = [one for one in value if isinstance(one, torch.Tensor)]
    return found or [one for held in value for one in vars(held).values() if isinstance(one, torch.Tensor)]


def _surroundings(device: torch.device) -> dict[str, Any]:
    """What else a graph depends on, of this process and machine."""
    from torch._functorch import config as functorch  # late: they load the compiler
    from torch._inductor import config as inductor

    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device), torch.version.cuda, torch.backends.cudnn.version()
    else:
        machine = platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return {
        "machine": machine,
        "inductor": inductor.save_config_portable(),
        "functorch": functorch.save_config_portable(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "products": (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "autocast": (torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)),
    }


def code_of_graphs() -> tuple[str | None, ...]:
    """Of which version the code is that graphs are made of, and that which compiles it."""
    return _sources(), platform.python_version(), torch.__version__, *map(_version, LIBRARIES)


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


@cache
def _sources() -> str:
    """Digest of the code that graphs are made of."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for name in TRACED:
        place = package / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            found.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
