"""Where PyTorch keeps what it compiled; a space in that path is refused before ranks start."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from composing import Typed
from otil_exp.choices import DeviceKind
from otil_exp.compile_cache import check_compile_cache, compiler_folder


def test_a_space_is_refused_where_a_compiler_would_stumble_over_it(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = typed("engine=compiled")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"{tmp_path}/a b")
    with pytest.raises(ValueError, match="type TORCHINDUCTOR_CACHE_DIR=/tmp/inductor"):
        check_compile_cache(compiled)
    check_compile_cache(typed("engine=eager"))
    check_compile_cache(replace(compiled, device=replace(compiled.device, kind=DeviceKind.cuda)))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"{tmp_path}/ab")
    check_compile_cache(compiled)


@pytest.mark.parametrize("name", ["anna", "ad\\anna", None])
def test_the_folder_is_that_of_pytorch_whoever_asks(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """None: a user's number that no file of the system names, as containers have it."""
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    if name is None:
        monkeypatch.setattr(os, "getuid", lambda: 54321)
    else:
        monkeypatch.setenv("USER", name)
    assert compiler_folder() == default_cache_dir()
