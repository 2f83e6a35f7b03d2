"""Locks that say who holds them."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from otil_exp.run_folder.lock import BusyError, held, is_held


def test_the_holder_is_named_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "21")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_JOB_ID", "24")
    path, taken, leave = tmp_path / ".lock", threading.Event(), threading.Event()

    def hold() -> None:
        with held(path):
            taken.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(30)
    assert is_held(path)
    with pytest.raises(BusyError, match="^job 21_3 on "), held(path):
        pass
    told: list[str] = []

    def go(words: str) -> None:
        told.append(words)
        leave.set()

    with held(path, 30, go):
        assert len(told) == 1
    holder.join(30)
    assert not is_held(path)


def test_a_file_system_without_locks_is_named_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    sentence = r"cannot be locked \(No locks available\).*output_dir=FOLDER"
    with pytest.raises(ValueError, match=sentence), held(tmp_path / ".lock"):
        pass
