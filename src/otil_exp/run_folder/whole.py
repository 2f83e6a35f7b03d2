"""Files that are there whole or not at all, and what is said of one that something else cut."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

_PNG_HEAD, _PNG_TAIL = b"\x89PNG\r\n\x1a\n", b"\x00\x00\x00\x00IEND\xaeB`\x82"


class BrokenFolderError(ValueError):
    """A file of a run folder that something else than this program cut or changed, or an earlier version wrote."""


def make_writable(folder: Path, setting: str) -> None:
    """Make a folder, if need be, and see that files can be made in it and filled.

    setting: what a user types to name another one. Raises ValueError, with what to type, where that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # permissions say too little: root, /proc, quotas
            file.write(bytes(4096))  # on a full disk a file can be made, but not filled
            file.flush()
    except OSError as error:
        raise ValueError(
            f"{setting}: {folder} cannot be written to ({error.strerror}); use {setting}=FOLDER, one that you can "
            "write, or make room there"
        ) from error


def write_whole(path: Path, save: Callable[[Path], object]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never half of one.

    It is on the disk before it is renamed, so that not even a crash of the machine leaves an empty file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.part")  # machines may share the folder
    try:
        save(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed left below a folder; called by who alone may write there."""
    for part in folder.rglob(".*.part"):
        part.unlink(missing_ok=True)


def checksum(path: Path) -> str | None:
    """SHA-256 of a file's content, in hex; None where there is no file."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole_png(path: Path) -> bool:
    """Whether there is a picture, from its beginning to its end: one that was cut, emptied or zeroed has lost one."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_PNG_HEAD))
            file.seek(-len(_PNG_TAIL), os.SEEK_END)
            return head == _PNG_HEAD and file.read() == _PNG_TAIL
    except OSError:
        return False
