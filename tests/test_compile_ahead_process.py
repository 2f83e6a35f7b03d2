"""The process that compiles ahead: what ranks do when it fails, and when it ends. Nothing is compiled here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from composing import Typed
from otil_exp import compile_ahead, graph_store
from otil_exp.cells.normal_form import effective
from otil_exp.compiled_cell import Compiled
from otil_exp.config import ExperimentConfig
from otil_exp.rank_unet import compiled_call
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.sliced import compile_turn, graph
from otil_exp.traffic import TrafficCounter
from places import place_without_peers
from tiny_sdxl import tiny_inputs

RANKS = place_without_peers(rank=0, world_size=2)

DONE = "import os, sys; os.write(int(sys.argv[1]), b'done')"
FAILS = "print('as it happens'); raise SystemExit('no such luck')"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
HANGS = "import time; time.sleep(300)"
BOUND_TO_RANK = (
    f"import os; from otil_exp.launch.lifetime import die_with_parent; die_with_parent(os.getppid()); {HANGS}"
)
"""Programs of the other process, which gets the descriptor of the lock."""

WARNING = "nothing was compiled ahead"


class Doubling(nn.Module):
    """With the interface of a UNet."""

    weight = nn.Parameter(torch.ones(1))
    config, dtype = {}, torch.float32

    def forward(self, sample: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor]:
        return (2 * sample,)


INPUTS = StepInputs(timestep=torch.ones(2), **tiny_inputs(height=64, width=64))
ON_RANK: Any = SimpleNamespace(has_silent_form=True, unet=Doubling())


@pytest.fixture(autouse=True)
def lock_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(compile_ahead, "has_room", lambda *_: True)
    monkeypatch.setattr(compiled_call, "BACKEND", "eager")
    return tmp_path


@pytest.fixture
def config(typed: Typed) -> ExperimentConfig:
    return effective(typed("preset=otil", "engine=compiled", "topology=2gpu_nosplit"))


Helped = Callable[..., Any]


@pytest.fixture
def helped(config: ExperimentConfig, monkeypatch: pytest.MonkeyPatch) -> Helped:
    """with helped(program) as compiled: a rank makes its graphs, beside that program."""

    @contextmanager
    def helped_by(program: str) -> Iterator[Compiled]:
        monkeypatch.setattr(compile_ahead, "PROGRAM", ("-c", program))
        compiled = Compiled()
        with compile_ahead.compiling_ahead(config, RANKS, ON_RANK, INPUTS, compiled):
            yield compiled

    return helped_by


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Turns that were taken to compile: none where a graph was to be found."""
    taken: list[bool] = []

    @contextmanager
    def noted(ranks: object, *, communicates: bool) -> Iterator[None]:
        taken.append(communicates)
        yield

    monkeypatch.setattr(graph, "compile_turn", noted)
    return taken


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that were started."""
    started: list[Any] = []
    start = compile_ahead._started
    monkeypatch.setattr(compile_ahead, "_started", lambda *of: started.append(start(*of)) or started[-1])
    return started


def call_silent_form() -> None:
    call = graph.Graph(Doubling(), RANKS, TrafficCounter(), form="silent", communicates=False, ahead=True)
    with torch.no_grad():
        assert torch.equal(call(INPUTS), 2 * INPUTS.sample)
    torch.compiler.reset()


def test_what_was_compiled_ahead_needs_no_turn(
    helped: Helped, turns: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    with helped(DONE) as compiled:
        call_silent_form()
    assert compiled.ahead
    assert turns == []
    assert WARNING not in caplog.text


@pytest.mark.parametrize(
    ("program", "why"), [(FAILS, "no such luck"), (DIES, "its process ended with -9")], ids=["fails", "is killed"]
)
def test_ranks_compile_for_themselves_what_the_other_process_did_not(
    helped: Helped, turns: list[bool], caplog: pytest.LogCaptureFixture, program: str, why: str
) -> None:
    with helped(program) as compiled:
        call_silent_form()
    assert not compiled.ahead
    assert turns == [False]
    (said,) = [record.getMessage() for record in caplog.records if WARNING in record.getMessage()]
    assert said.endswith(f": {why}")


def test_nobody_waits_twice_for_a_process_that_hangs_and_it_is_gone_in_the_end(
    helped: Helped,
    turns: list[bool],
    processes: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(compile_turn, "AHEAD_S", 0.2)
    monkeypatch.setattr(compile_turn, "_wait_for_done", noting(looks, compile_turn._wait_for_done))
    with helped(HANGS) as compiled:
        call_silent_form()
        call_silent_form()
        assert processes[0].poll() is None
    assert processes[0].returncode == -signal.SIGKILL
    assert len(looks) == 1
    assert turns == [False, False]
    assert not compiled.ahead
    assert "it was not done" in caplog.text


def noting(calls: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return noted


def test_an_exception_of_a_rank_passes_and_the_other_process_is_gone(
    helped: Helped, processes: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), helped(HANGS):
        raise ZeroDivisionError
    assert processes[0].returncode == -signal.SIGKILL
    assert WARNING not in caplog.text
    assert compile_turn._looking is None
    assert lock_is_free()


def lock_is_free() -> bool:
    lock = compile_turn.take_ahead(RANKS)
    if lock is None:
        return False
    lock.close()
    return True


def test_the_other_process_dies_with_a_rank_that_is_killed(helped: Helped) -> None:
    def rank() -> None:
        with helped(BOUND_TO_RANK):
            time.sleep(300)

    process = multiprocessing.get_context("fork").Process(target=rank, daemon=True)
    process.start()
    wait_until(lambda: not lock_is_free())
    time.sleep(0.5)  # killed at any time it ends; most of all once it sleeps
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    wait_until(lock_is_free)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_help_is_for_cells_that_are_new(
    config: ExperimentConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(graph_store.VARIABLE, str(tmp_path / "graphs"))
    monkeypatch.setattr(compile_ahead, "PROGRAM", ("-c", DONE))
    for ahead in (True, False):
        with compile_ahead.compiling(config, RANKS, ON_RANK, INPUTS) as compiled:
            assert compile_turn.compiled_ahead(RANKS) == ahead
        assert compiled.ahead == ahead


@pytest.mark.parametrize("broken", ["take_ahead", "TemporaryFile", "Popen"])
def test_a_process_that_cannot_be_started_costs_the_help_alone(
    helped: Helped,
    turns: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    owner = compile_ahead.subprocess if broken == "Popen" else compile_ahead
    monkeypatch.setattr(owner, broken, full)
    with helped(DONE) as compiled:
        call_silent_form()
    assert not compiled.ahead
    assert turns == [False]
    assert "No space left on device" in caplog.text
    assert broken == "take_ahead" or lock_is_free()


def test_there_is_room_where_four_times_the_weights_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what the fixture says of it
    weights: Any = SimpleNamespace(unet=nn.Linear(10, 10, bias=False))  # 400 bytes
    assert not compile_ahead.has_room(torch.device("cpu"), weights)
    for free, room in ((1600, True), (1599, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 10**6))
        assert compile_ahead.has_room(torch.device("cuda", 0), weights) == room
