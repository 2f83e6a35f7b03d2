"""One process runs a cell; who finds it taken is told by whom, and what to do where there are no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.lock import NAME, BusyError, Owner, held, is_held, is_locked, owner
from otil_exp.run_folder.whole import make_writable

HOLD = """
import sys
from pathlib import Path
from otil_exp.run_folder.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the folder's lock until its stdin is closed, or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_taken_lock_names_its_owner_and_goes_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "cell")
    with held_by_another(folder.path, SLURM_JOB_ID="4711") as process:
        where = rf"process {process.pid} of job 4711 on {platform.node()}"
        with pytest.raises(BusyError, match=f"is being run by {where}"), folder.locked():
            raise AssertionError
        assert is_locked(folder.path)
        process.kill()
        process.wait(10)
    assert not is_locked(folder.path)
    with folder.locked():
        assert owner(folder.path / NAME) == Owner(platform.node(), os.getpid(), os.environ.get("SLURM_JOB_ID"))


def test_an_owner_that_was_cut_is_just_another_process(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        (tmp_path / ".lock").write_text('{"host": ')
        with pytest.raises(BusyError, match="by another process"), RunFolder(tmp_path).locked():
            raise AssertionError


def test_a_folder_nobody_began_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(file: object, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ValueError, match=r"has no locks .* use output_dir=FOLDER"), RunFolder(tmp_path).locked():
        raise AssertionError


def test_a_disk_that_is_full_at_the_start_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can still be made on it, and not be filled: as /dev/full behaves."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: Path("/dev/full").open("wb"))  # noqa: SIM115
    with pytest.raises(ValueError, match=r"output_dir: .* \(No space left on device\); use output_dir=.* make room"):
        make_writable(tmp_path, "output_dir")


def test_what_killed_writers_left_goes_with_the_next_lock(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "images").mkdir()
    parts = [tmp_path / ".record.json.123.part", tmp_path / "images" / ".00.png.123.part"]
    kept = [tmp_path / "record.json", tmp_path / "images" / "00.png"]
    for path in (*parts, *kept):
        path.write_text("{}")
    with folder.locked():
        assert [path.exists() for path in parts] == [False, False]
        assert [path.exists() for path in kept] == [True, True]


def test_a_holder_is_waited_for_and_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "21")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    path, taken, leave = tmp_path / "any.lock", threading.Event(), threading.Event()

    def hold() -> None:
        with held(path):
            taken.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(30)
    assert is_held(path)
    with pytest.raises(BusyError, match="of job 21_3 on "), held(path):
        pass
    told: list[str] = []

    def go(words: str) -> None:
        told.append(words)
        leave.set()

    with held(path, 30, go):
        assert len(told) == 1
    holder.join(30)
    assert not is_held(path)
