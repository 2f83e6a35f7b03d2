"""Where later runs find files, for every user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from otil_exp.cache_folder import cache_folder


def test_below_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/ada/.cache/otil_exp")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/cache")
    assert cache_folder() == Path("/scratch/cache/otil_exp")


def test_a_user_without_a_home_has_a_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / f"otil_exp_{os.getuid()}"
