"""Which process compiles first: locks, and what the files of other cells, jobs and users say."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from otil_exp.rank_unet.sliced import compile_turn
from otil_exp.rank_unet.sliced.compile_turn import compiled_ahead, looking_ahead, say_done, take_ahead
from places import place_without_peers

FIRST, SECOND, THIRD, FOURTH = (place_without_peers(rank, 4, split_batch=True) for rank in range(4))
"""Ranks 0 and 1 have one half of the batch, 2 and 3 the other."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def leave_done() -> None:
    """As the process that compiled ahead for another cell."""
    lock = take_ahead(FIRST)
    assert lock is not None
    with lock:
        say_done(lock)


def test_one_of_a_half_takes_the_lock_until_its_process_has_ended() -> None:
    lock, other_half = take_ahead(FIRST), take_ahead(THIRD)
    assert lock is not None
    assert other_half is not None
    assert take_ahead(SECOND) is None
    assert take_ahead(FOURTH) is None
    lock.close()
    again = take_ahead(SECOND)
    assert again is not None
    for taken in (again, other_half):
        taken.close()


def test_ranks_of_a_half_are_told_when_it_is_done() -> None:
    with looking_ahead():
        leave_done()
        assert compiled_ahead(SECOND)
    with looking_ahead():
        assert not compiled_ahead(THIRD)


def test_a_rank_waits_once_for_a_process_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_turn, "AHEAD_S", 0.0)
    lock = take_ahead(FIRST)
    assert lock is not None
    with looking_ahead():
        assert not compiled_ahead(SECOND)
        say_done(lock)
        lock.close()
        assert not compiled_ahead(SECOND)  # it has compiled for itself


def test_what_another_cell_left_says_nothing() -> None:
    leave_done()
    assert not compiled_ahead(FIRST)  # nobody compiles ahead for this one
    with looking_ahead():
        lock = take_ahead(FIRST)
        assert lock is not None
        lock.close()  # it ended, and said nothing
        assert not compiled_ahead(FIRST)


def test_without_a_file_nobody_compiles_ahead(folder: Path) -> None:
    with looking_ahead():
        assert not compiled_ahead(FIRST)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("variable", ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])
def test_jobs_of_one_user_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Nor where no such variable is set."""
    monkeypatch.delenv(variable, raising=False)
    one = take_ahead(FIRST)
    monkeypatch.setenv(variable, "another/one " + "x" * 300)
    other = take_ahead(FIRST)
    assert one is not None
    assert other is not None
    one.close()
    other.close()


def test_nodes_that_share_the_temporary_folder_do_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    one = take_ahead(FIRST)
    monkeypatch.setattr(compile_turn.platform, "node", lambda: "another")
    other = take_ahead(FIRST)
    assert one is not None
    assert other is not None
    one.close()
    other.close()


def test_files_have_the_users_number_and_are_the_users_own(folder: Path) -> None:
    leave_done()
    (file,) = folder.iterdir()
    assert file.name.endswith(f"-{os.getuid()}.lock")
    assert file.stat().st_mode & 0o777 == 0o600


def test_where_there_can_be_no_file_everybody_compiles(
    monkeypatch: pytest.MonkeyPatch, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "gone"))
    with pytest.raises(FileNotFoundError):
        take_ahead(FIRST)
    with looking_ahead():
        assert not compiled_ahead(FIRST)
    with compile_turn.compile_turn(FIRST, communicates=False):
        pass
    assert "ranks compile all at once" in caplog.text
