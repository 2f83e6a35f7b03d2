"""A graph is compiled once: for other weights, blocks alike, and processes that come later, it is found."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from otil_exp.graph_store import GraphStore, using
from otil_exp.rank_unet import compiled_call as module
from otil_exp.rank_unet.compiled_call import check_same, compiled_call

pytestmark = [
    pytest.mark.slow,  # a compiler of C++
    pytest.mark.usefixtures("_quickly"),
]
X = torch.linspace(-1, 1, 5)


@pytest.fixture
def _quickly() -> Iterator[None]:
    """What Inductor makes ready for many graphs takes longer than one. Graphs of this test are nobody else's."""
    with torch._inductor.config.patch(compile_threads=1, cpp_cache_precompile_headers=False), torch.no_grad():
        yield
    module._loaded.clear()
    torch.compiler.reset()


class Scaled(nn.Module):
    """Keeps what it saw last, as layers keep context."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor), requires_grad=False)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.copy_(x)
        return self.factor * x.exp()


def call_module(scaled: Scaled, x: torch.Tensor) -> Any:
    return scaled(x)


@contextmanager
def later_process(folder: Path) -> Iterator[GraphStore]:
    """What a process has in memory is gone."""
    module._loaded.clear()
    torch.compiler.reset()
    gc.collect()
    store = GraphStore([folder])
    with using(store):
        yield store


def assert_right(call: Callable[..., Any], factor: float) -> None:
    scaled = Scaled(factor)
    for x in (X, X + 1):
        torch.testing.assert_close(call(scaled, x), factor * x.exp())
        assert torch.equal(scaled.seen, x)


def test_what_one_process_compiled_others_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights of their own, and without the parts of the compiler that choose kernels."""
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)
        assert_right(compiled_call(call_module, Scaled(4.0), X), 4.0)
        (key,) = store.made
        assert store.found == []
    monkeypatch.setattr(torch, "compile", refuse)
    monkeypatch.setattr(module, "best_kernels", refuse)
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(3.0), X), 3.0)
        assert store.found == [key]
        assert store.made == []


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be compiled")


def test_the_next_cell_of_a_process_loads_nothing_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with later_process(tmp_path):
        call = compiled_call(call_module, Scaled(2.0), X)
    monkeypatch.setattr(module, "_read", refuse)
    store = GraphStore([tmp_path])
    with using(store):
        assert compiled_call(call_module, Scaled(3.0), X) is call
    assert len(store.found) == 1


def test_what_cannot_be_read_is_compiled_again_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with later_process(tmp_path) as store:
        compiled_call(call_module, Scaled(2.0), X)
    (path,) = tmp_path.glob("*.graph")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)
        assert len(store.made) == 1
    assert "is compiled again" in caplog.text
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)
        assert len(store.found) == 1


def test_without_a_store_a_call_is_torch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKEND", "eager")
    assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)


def test_a_pytorch_that_makes_no_files_costs_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("torch._dynamo.aot_compile.aot_compile_fullgraph", refuse)
    monkeypatch.setattr(module, "_just_in_time", lambda function: function)
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)
        assert len(store.made) == 1
    assert "compiled for this process alone" in caplog.text
    assert list(tmp_path.iterdir()) == []


class NoFile:
    """A graph that pickle cannot take."""

    def disable_guard_check(self) -> None: ...

    def __call__(self, scaled: Scaled, x: torch.Tensor) -> torch.Tensor:
        return call_module(scaled, x)

    @classmethod
    def serialize(cls, call: NoFile) -> None:
        raise TypeError("cannot pickle it")


def test_a_graph_that_makes_no_file_is_called_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = SimpleNamespace(aot_compile=lambda arguments: NoFile())
    monkeypatch.setattr(torch, "compile", lambda *_, **__: compiled)
    with later_process(tmp_path) as store:
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)
        assert len(store.made) == 1
    assert "its file cannot be made: cannot pickle it" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacks", ["skip_all_guards_unsafe", "load_compiled_function"])
def test_a_pytorch_that_lacks_what_makes_files_compiles_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    (tmp_path / "any.graph").touch()
    monkeypatch.setattr(module, "graph_key", lambda *_, **__: "any")
    monkeypatch.setattr(module, "_just_in_time", lambda function: function)
    monkeypatch.setattr(module, "_ahead_of_time" if lacks.startswith("load") else "best_kernels", refuse)
    monkeypatch.delattr(torch.compiler, lacks)
    with later_process(tmp_path):
        assert_right(compiled_call(call_module, Scaled(2.0), X), 2.0)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "called", "same"),
    [
        ([1.0, 2.0], [1.1, 2.0], True),
        ([1.0, -2.0], [1.0, 2.0], False),
        ([0.0, 0.0], [1.0, 2.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([1.0, 0.0], [0.0, 0.0], False),
        ([NAN, 2.0], [1.0, 2.0], False),
        ([INF, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [NAN, 2.0], True),  # nothing is known
        ([1.0, 2.0], [INF, 2.0], True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_graph_of_something_else_is_refused(
    found: list[float], called: list[float], same: bool, dtype: torch.dtype
) -> None:
    refused = nullcontext() if same else pytest.raises(RuntimeError, match="something else than the UNet .* delete /")
    with refused:
        check_same(torch.tensor(found, dtype=dtype), torch.tensor(called, dtype=dtype))
