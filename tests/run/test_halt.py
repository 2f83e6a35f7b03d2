"""The halt of a run between its ready pipelines and its first picture."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from composing import Compose
from otil_exp import job as job_module
from otil_exp.cells.prepare import prepare
from otil_exp.job import Job
from otil_exp.run.execution import execute
from otil_exp.run.halt import FileHalt
from otil_exp.run_folder.cell import Cell
from otil_exp.topology import RankContext, single_rank
from pipelines import free_port, leave_harness
from ranks import run_ranks

FEW = ("device=cpu", "num_inference_steps=2", "warmup_steps=0", "prompts.limit=1", "metrics=none", "height=128")


@dataclass(frozen=True)
class NotedHalt(FileHalt):
    """Notes which ranks come."""

    def __call__(self, ranks: RankContext) -> None:
        self.ready.with_name(f"rank{ranks.rank}").touch()
        super().__call__(ranks)


def run_on_rank(rank: int, port: str, cell: Cell, halt: FileHalt) -> None:
    leave_harness(rank, 2, port)
    execute([cell], hosted=False, halt=halt)


@pytest.mark.ranks
def test_ranks_get_ready_and_make_no_picture_until_they_are_let_go(composed: Compose, tmp_path: Path) -> None:
    cell = prepare(composed(*FEW, "preset=otil", "topology=2gpu_nosplit"))
    halt = NotedHalt(tmp_path / "ready", tmp_path / "go", bound_s=120)
    failures: list[Exception] = []

    def run() -> None:
        try:
            run_ranks(2, run_on_rank, free_port(), cell, halt, timeout=200)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 150
    while halt.ready_at is None and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not failures
    assert halt.ready_at is not None
    assert cell.folder.record["engine_runs_as"] == "eager"  # the pipeline is there
    time.sleep(1.0)
    assert not cell.folder.has_image(0)
    assert cell.folder.record["status"] == "running"
    halt.let_go()
    thread.join(150)
    assert not failures
    assert cell.made
    assert sorted(path.name for path in tmp_path.glob("rank?")) == ["rank0", "rank1"]


def test_a_run_that_is_not_let_go_gives_up_and_says_what_is_missing(tmp_path: Path) -> None:
    halt = FileHalt(tmp_path / "ready", tmp_path / "go", bound_s=0.2)
    with pytest.raises(TimeoutError, match=r"ready, but not let go within 0.2 s: .*/go was not made"):
        halt(single_rank(torch.device("cpu")))
    assert halt.ready_at is not None
    halt.let_go()
    halt(single_rank(torch.device("cpu")))
    halt.clear()
    assert halt.ready_at is None
    assert not halt.go.exists()


def test_a_job_hands_its_halt_to_its_ranks(composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_this_process(function: Callable[..., Any], world_size: int, *args: Any, **options: Any) -> None:
        assert world_size == 1
        function(*args)

    monkeypatch.setattr(job_module, "launch", in_this_process)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    cell = prepare(composed(*FEW, "preset=reference"))
    came: list[bool] = []

    def halt(ranks: RankContext) -> None:
        assert ranks.is_main
        came.append(cell.folder.has_image(0))

    failures: dict[str, str] = {}
    Job(say=lambda words: None, halt=halt).run([cell], failures)
    assert came == [False]
    assert not failures
    assert cell.made
    assert "RANK" not in os.environ
