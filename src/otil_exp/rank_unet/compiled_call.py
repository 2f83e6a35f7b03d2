"""A function compiled for arguments of certain kinds: found in a store of graphs, or made and kept there.

Dynamo's part is in the file, too (torch.compile(...).aot_compile), so that the code of a UNet is read once: reading it
again is most of a start that finds the rest compiled. A graph holds no weights: modules are arguments. It checks
nothing about them, so the key of the file (graph_key.py) is of all that it depends on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from io import BufferedReader
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch._dynamo import config as dynamo

from otil_exp import graph_store
from otil_exp.graph_store import GraphStore
from otil_exp.rank_unet.graph_key import graph_key
from otil_exp.rank_unet.kernel_choice import best_kernels

BACKEND = "inductor"
"""What torch.compile makes of a graph; tests, which look at graphs and not at speed, use one that compiles no C++."""

LARGEST_OFF = 0.5
"""How far a graph's result may be from that of the modules, as a part of it."""

Call = Callable[..., Any]

_loaded: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""By key, the graphs that something in this process calls."""

_log = logging.getLogger(__name__)


def compiled_call(function: Call, *arguments: Any, depends_on: Any = None) -> Call:
    """A call of `function` for arguments like these: the same types, shapes and strides, modules that are alike.

    depends_on: what the graph depends on besides. Without a store the call is torch.compile's, which compiles when it
    is called, and again for other arguments.
    """
    store = graph_store.current()
    if store is None or BACKEND != "inductor":
        return _just_in_time(function)
    key = graph_key(function, *arguments, depends_on=depends_on)
    call = _loaded.get(key) or store.load(key, _read)
    if call is None:
        store.made.append(key)
        call = _made(store, key, function, arguments)
    elif key not in store.made and key not in store.found:
        store.found.append(key)
    _loaded[key] = call
    return call


def _just_in_time(function: Call) -> Call:
    backend = _inductor if BACKEND == "inductor" else BACKEND
    return torch.compile(function, fullgraph=True, dynamic=False, backend=backend)


def _inductor(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
    from torch._inductor.compile_fx import compile_fx  # late: it loads the compiler

    with best_kernels():
        return compile_fx(graph, inputs)


def _read(file: BufferedReader) -> Any:
    call: Any = torch.compiler.load_compiled_function(file)
    call.disable_guard_check()  # there are none
    return call


def _made(store: GraphStore, key: str, function: Call, arguments: tuple[Any, ...]) -> Any:
    try:
        call = _ahead_of_time(function, arguments)
    except Exception as error:  # of torch.compile itself it says so again
        _warn_of_no_file(error)
        return _just_in_time(function)
    try:
        # Not save_compiled_function: the file would be nobody else's to read.
        content = type(call).serialize(call).serialized_data
    except Exception as error:  # whatever pickle cannot take
        _warn_of_no_file(error)
    else:
        store.save(key, lambda path: path.write_bytes(content))
    return call


def _ahead_of_time(function: Call, arguments: tuple[Any, ...]) -> Any:
    no_guards: dict[str, str | int | bool | Call] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    with best_kernels(), dynamo.patch(enable_aot_compile=True):
        lazy: Any = torch.compile(function, fullgraph=True, dynamic=False, options=no_guards)
        call = lazy.aot_compile((arguments, {}))
    call.disable_guard_check()
    return call


def _warn_of_no_file(error: Exception) -> None:
    _log.warning("a graph is compiled for this process alone, since its file cannot be made: %s", error)


def check_same(found: torch.Tensor, called: torch.Tensor) -> None:
    """Raise RuntimeError where a graph computes something else than the modules that it was made of.

    What differs is then as large as the result, and roundings, of fp8 too, a tenth of it at most. Nothing is known
    where what the modules compute is not finite, as half precision's may be.
    """
    size, off = called.float().norm(), (found.float() - called.float()).norm()
    if size.isfinite() and not off <= LARGEST_OFF * size:  # not a number either
        files = " and ".join(f"{folder}/*.graph" for folder in graph_store.folders())
        raise RuntimeError(
            f"engine=compiled: a graph computes something else than the UNet (off by {off / size:.2f} of the result); "
            f"delete {files}, so that it is compiled again, or use engine=eager"
        )
