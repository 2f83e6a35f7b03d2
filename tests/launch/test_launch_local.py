"""Ranks that we start ourselves: what they find, what they return, and how their failures are named."""

from __future__ import annotations

import inspect
import os
import pickle
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.api import PContext

from launch import duties
from otil_exp.launch import RankFailure, launch

pytestmark = pytest.mark.ranks
as_users_do = pytest.mark.usefixtures("fresh_processes")
"""Of what a start looks like, and of ranks that no signal reaches; the others are about our words of their end."""

BOUND_S = 60.0
"""Generous: a failed job ends in seconds where the cores are not shared."""


@pytest.fixture(autouse=True)
def ends_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start = time.monotonic()
    yield
    assert time.monotonic() - start < BOUND_S


@pytest.fixture
def impatient_elastic(monkeypatch: pytest.MonkeyPatch):
    """elastic gives ranks half a minute to follow its SIGTERM before it kills them: 3 s here."""
    assert inspect.signature(PContext.close).parameters["timeout"].default == 30 < BOUND_S
    monkeypatch.setattr(PContext.close, "__defaults__", (None, 3))


@as_users_do
def test_rank_zero_returns_what_every_rank_finds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(5)))
    found = launch(duties.gathered_environment, 2)
    assert found is not None
    assert [(env["RANK"], env["LOCAL_RANK"]) for env in found] == [("0", "0"), ("1", "1")]
    assert {(env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) for env in found} == {("2", "2")}
    assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in found}) == 1
    assert {(env["OMP_NUM_THREADS"], env["threads"]) for env in found} == {("2", "2")}  # 5 cores // 2 ranks


def test_a_single_rank_too_is_a_fresh_process_and_leaves_this_one_as_it_was():
    before = dict(os.environ)
    assert launch(duties.process_id, 1, threads=1) not in (None, os.getpid())
    assert {name for name in os.environ if name not in before} <= {"TORCHELASTIC_SIGNALS_TO_HANDLE"}


@as_users_do
def test_each_rank_has_its_log_and_rank_zero_the_terminal_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank1.log").write_text("of the run that is continued\n")
    launch(duties.speak, 2, "blue", log_dir=folder)
    terminal = "".join(capfd.readouterr())
    assert sorted(file.name for file in folder.iterdir()) == ["rank0.log", "rank1.log"]
    logs = [(folder / f"rank{rank}.log").read_text() for rank in (0, 1)]
    assert [terminal.count(f"{way} blue") for way in ("logged", "warned", "printed", "echoed")] == [1, 1, 1, 1]
    assert "[rank 0][speaker][WARNING] logged blue" in logs[0]
    assert logs[1].startswith("of the run that is continued\n")
    assert all(f"{way} blue" in logs[1] for way in ("logged", "warned", "printed", "echoed"))
    assert not any(noise in terminal for noise in ("elastic", "OMP_NUM_THREADS", "resource_tracker", "rank 1"))


def test_an_exception_on_rank_one_is_named_while_the_others_wait(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_one_raises, 3, log_dir=tmp_path)
    failure = caught.value
    assert (failure.rank, failure.local_rank, failure.exitcode, failure.signal) == (1, 1, 1, None)
    assert failure.message == "ValueError: no such colour: bleen"
    assert str(failure).startswith(
        "rank 1 failed: ValueError: no such colour: bleen\n\nTraceback (most recent call last)"
    )
    assert "in rank_one_raises" in failure.traceback
    assert failure.traceback.splitlines()[-3:] == (tmp_path / "rank1.log").read_text().splitlines()[-3:]
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)
    assert "".join(capfd.readouterr()) == ""  # whoever catches it shows it


def test_sigkill_of_rank_two_ends_the_job_and_is_named():
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_two_is_killed, 4)
    assert caught.value.signal == "SIGKILL"
    assert str(caught.value) == "rank 2 was killed by SIGKILL (out of memory, or killed by hand)"


@as_users_do
@pytest.mark.usefixtures("impatient_elastic")
def test_a_rank_deaf_to_sigterm_does_not_outlive_the_one_that_was_killed(tmp_path: Path):
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_one_is_terminated_and_rank_zero_is_deaf, 2, log_dir=tmp_path)
    assert (caught.value.rank, caught.value.signal) == (1, "SIGTERM")
    assert str(tmp_path / "rank1.log") in str(caught.value)


def test_a_hung_collective_ends_by_its_time_out_and_says_how_to_raise_it(tmp_path: Path):
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_one_is_late, 2, 2.0, log_dir=tmp_path)
    assert caught.value.rank == 0
    for words in ("waited 2 s", "launch.collective_timeout_s=60", "still busy with something else, or stopped: rank 1"):
        assert words in caught.value.message
    assert "in rank_one_is_late" in (tmp_path / "rank1.log").read_text()  # where it hung


def test_the_exit_code_of_a_rank_is_named():
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_one_exits, 2, 3)
    assert (caught.value.rank, caught.value.exitcode) == (1, 3)
    assert str(caught.value) == "rank 1 exited with code 3"


@as_users_do
@pytest.mark.usefixtures("impatient_elastic")
def test_a_stopped_rank_ends_the_job_within_the_bound_and_is_named():
    """SIGSTOP: it hears no SIGTERM either, so that elastic kills it some time after the others."""
    with pytest.raises(RankFailure) as caught:
        launch(duties.rank_one_is_stopped, 2, 2.0)
    assert caught.value.rank == 0
    assert "waited 2 s" in caught.value.message
    assert "still busy with something else, or stopped: rank 1" in caught.value.message
