"""Graphs as files: found in any folder, kept in the first that can be written, the newest left."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

import pytest

from otil_exp import graph_store
from otil_exp.graph_store import VARIABLE, GraphStore, folders


def content(file: BufferedReader) -> bytes:
    found = file.read()
    if found == b"broken":
        raise EOFError("it ends too early")
    return found


def keep(store: GraphStore, key: str, what: bytes) -> None:
    store.save(key, lambda path: path.write_bytes(what))


def test_what_is_kept_is_found_in_whichever_folder_it_is(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    keep(GraphStore([shared, own]), "a", b"of all")
    keep(GraphStore([own]), "b", b"of this machine")
    store = GraphStore([shared, own])
    assert [store.has(key) for key in "abc"] == [True, True, False]
    assert [store.load(key, content) for key in "abc"] == [b"of all", b"of this machine", None]
    assert sorted(path.name for path in shared.iterdir()) == ["a.graph"]


def test_a_file_that_cannot_be_read_is_said_and_the_next_folders_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    keep(GraphStore([shared]), "a", b"broken")
    assert GraphStore([shared]).load("a", content) is None
    assert "a.graph cannot be read, and its graph is compiled again: it ends too early" in caplog.text
    keep(GraphStore([own]), "a", b"whole")
    assert GraphStore([shared, own]).load("a", content) == b"whole"
    keep(GraphStore([shared, own]), "a", b"made again")
    assert GraphStore([shared]).load("a", content) == b"made again"


@pytest.mark.parametrize("folder", ["a file", "~nobody_here/graphs", "x" * 300])
def test_a_folder_that_cannot_be_is_said_and_the_machines_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "machine"))
    monkeypatch.setenv(VARIABLE, folder)
    Path("a file").touch()
    Path("~nobody_here").touch()
    keep(GraphStore(folders()), "a", b"kept")
    assert f"compiled graphs cannot be kept in {folder}" in caplog.text
    assert GraphStore(folders()).load("a", content) == b"kept"
    assert (tmp_path / "machine" / "otil_exp" / "a.graph").exists()


def test_nowhere_to_keep_a_graph_costs_the_file_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    store = GraphStore([tmp_path / "file"])
    keep(store, "a", b"lost")
    assert not store.has("a")
    assert "cannot be kept" in caplog.text


def test_folders_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/machine")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/cache")
    own = Path("/machine/otil_exp")
    monkeypatch.delenv(VARIABLE)
    assert folders() == [Path("/home/cache/otil_exp/compiled"), own]
    monkeypatch.setenv(VARIABLE, "/shared")
    assert folders() == [Path("/shared"), own]
    monkeypatch.setenv(VARIABLE, "")
    assert folders() == [own]


def test_what_cannot_be_deleted_stays_and_nothing_is_kept_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a file of somebody else's in a shared folder; here it is a folder, which root cannot unlink either."""
    monkeypatch.setattr(graph_store, "KEPT_BYTES", 10)
    shared, own = tmp_path / "shared", tmp_path / "own"
    (shared / "theirs.graph").mkdir(parents=True)
    os.utime(shared / "theirs.graph", (1, 1))
    keep(GraphStore([shared, own]), "a", 10 * b".")
    assert sorted(path.name for path in shared.iterdir()) == ["a.graph", "theirs.graph"]
    assert not own.exists()
    assert caplog.text == ""


def test_the_graphs_that_were_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of 10 bytes fit; others' files are left alone."""
    monkeypatch.setattr(graph_store, "KEPT_BYTES", 30)
    store = GraphStore([tmp_path])
    others = tmp_path / "notes.txt"
    others.write_bytes(100 * b".")
    for age, key in enumerate("abc"):
        keep(store, key, 10 * b".")
        os.utime(tmp_path / f"{key}.graph", (1000 + age, 1000 + age))
    left_by_a_writer = tmp_path / ".x.graph.1.part"
    left_by_a_writer.touch()
    os.utime(left_by_a_writer, (1, 1))
    store.load("a", content)  # used again
    keep(store, "d", 10 * b".")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.graph", "c.graph", "d.graph", "notes.txt"]


def test_one_store_at_a_time_is_in_use(tmp_path: Path) -> None:
    store = GraphStore([tmp_path])
    assert graph_store.current() is None
    with pytest.raises(ZeroDivisionError), graph_store.using(store):
        assert graph_store.current() is store
        raise ZeroDivisionError
    assert graph_store.current() is None
