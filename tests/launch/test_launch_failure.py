"""Which of several failures is the root cause; elastic's findings made by hand."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from otil_exp.launch.failure import root_cause


def recorded(tmp_path: Path, rank: int, message: str, at: float) -> ProcessFailure:
    """A rank that left an exception behind, at a time in seconds."""
    file = tmp_path / f"{rank}.json"
    words = {"message": message, "extraInfo": {"py_callstack": f"Traceback\n{message}", "timestamp": str(int(at))}}
    file.write_text(json.dumps({"message": words}))
    os.utime(file, (at, at))
    return ProcessFailure(local_rank=rank, pid=100 + rank, exitcode=1, error_file=str(file))


def died(rank: int, exitcode: int, at: int = 1000) -> ProcessFailure:
    failure = ProcessFailure(local_rank=rank, pid=100 + rank, exitcode=exitcode, error_file="")
    failure.timestamp = at
    return failure


def named(*failures: ProcessFailure) -> int:
    return root_cause(ChildFailedError("job", {f.local_rank: f for f in failures}), None).rank


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [::1]:1: Connection reset by peer"


def test_of_two_exceptions_in_one_second_the_earlier_counts(tmp_path: Path):
    assert named(recorded(tmp_path, 0, "KeyError: 1", 1000.8), recorded(tmp_path, 1, "ValueError", 1000.2)) == 1


def test_an_exception_beats_an_earlier_lost_connection(tmp_path: Path):
    assert named(recorded(tmp_path, 0, LOST, 1000.1), recorded(tmp_path, 1, "ValueError", 1000.2)) == 1


def test_a_sudden_death_beats_lost_connections_and_those_ended_because_of_it(tmp_path: Path):
    lost = recorded(tmp_path, 0, LOST, 1000.1)
    assert named(lost, died(1, -signal.SIGTERM), died(2, -signal.SIGKILL, 1001), died(3, 128 + signal.SIGTERM)) == 2


def test_an_exception_beats_the_abort_that_follows_from_it(tmp_path: Path):
    assert named(died(0, -signal.SIGABRT), recorded(tmp_path, 1, "ValueError", 1000.2)) == 1


def test_sigterm_is_a_cause_only_when_elastic_saw_it_before_anything_else(tmp_path: Path):
    lost = recorded(tmp_path, 1, LOST, 1000.1)
    assert named(died(2, -signal.SIGTERM), lost, died(0, -signal.SIGTERM)) == 2
    assert named(lost, died(2, -signal.SIGTERM)) == 1
