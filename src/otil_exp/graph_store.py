"""Compiled graphs as files: other ranks, later runs, and machines that share the folder find them.

A file has all that torch.compile made of a function for arguments of certain kinds (rank_unet/compiled_call.py): who
loads it neither reads the function nor compiles anything but, on a CPU, the C++ of its kernels. Its name says what it
depends on. It is read as PyTorch reads it, by pickle: a folder must be as trustworthy as code.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from otil_exp.cache_folder import cache_folder
from otil_exp.compile_cache import compiler_folder
from otil_exp.run_folder.whole import write_whole

VARIABLE = "OTIL_EXP_COMPILED"
"""Names the folder; empty: the one beside what PyTorch keeps on this machine."""

KEPT_BYTES = 4 * 2**30
"""How much a folder keeps: what was used last."""

Call = TypeVar("Call")

_log = logging.getLogger(__name__)


class GraphStore:
    """What one cell finds and adds."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """folders: where graphs are looked for; a new one goes to the first that can be written."""
        self._folders = folders
        self.found: list[str] = []
        """Keys of graphs that were there."""
        self.made: list[str] = []
        """Keys of graphs that were not."""

    def has(self, key: str) -> bool:
        """Whether some folder has a graph."""
        return any(True for _ in self._files(key))

    def load(self, key: str, read: Callable[[BufferedReader], Call]) -> Call | None:
        """The graph, as `read` reads a file; None where there is none that can be read."""
        for path in self._files(key):
            try:
                with path.open("rb") as file:
                    call = read(file)
            except Exception as error:  # whatever is wrong with it, it can be compiled again
                _log.warning("%s cannot be read, and its graph is compiled again: %s", path, error)
                continue
            with suppress(OSError):  # of somebody else's file
                os.utime(path)
            return call
        return None

    def save(self, key: str, write: Callable[[Path], object]) -> None:
        """Keep a graph, which `write` writes."""
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(_file(folder, key), write)
            except OSError as error:
                _log.warning("compiled graphs cannot be kept in %s: %s", folder, error)
                continue
            _leave_newest(folder)
            return

    def _files(self, key: str) -> Iterator[Path]:
        for folder in self._folders:
            path = _file(folder, key)
            with suppress(OSError):  # a name that is too long, a folder of somebody else's
                if path.exists():
                    yield path


def folders() -> list[Path]:
    """Where graphs are kept, by the variable: a folder that other machines have, and one of this machine."""
    own = Path(compiler_folder(), "otil_exp")
    named = os.environ.get(VARIABLE)
    if named is None:
        return [cache_folder() / "compiled", own]
    return [Path(os.path.expanduser(named)), own] if named else [own]  # Path's own fails for a user that is not there


_current: GraphStore | None = None


def current() -> GraphStore | None:
    """The store in use; None: graphs are compiled for this process alone."""
    return _current


@contextmanager
def using(store: GraphStore) -> Iterator[None]:
    """Within it graphs are looked for in a store, and added to it."""
    global _current
    assert _current is None, "a rank makes one cell ready at a time"
    _current = store
    try:
        yield
    finally:
        _current = None


def _file(folder: Path, key: str) -> Path:
    return folder / f"{key}.graph"


def _leave_newest(folder: Path) -> None:
    """Delete what was used longest ago of what is too much; parts that killed writers left are never used."""
    used: dict[Path, os.stat_result] = {}
    for path in folder.glob("*.graph*"):
        with suppress(OSError):  # another rank deletes, too
            used[path] = path.stat()
    size = 0
    for path in sorted(used, key=lambda path: -used[path].st_mtime):
        size += used[path].st_size
        if size > KEPT_BYTES:
            with suppress(OSError):  # of somebody else's file, which stays
                path.unlink(missing_ok=True)
