"""A compiler's cache with a space in its path is refused before ranks start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from composing import Typed
from otil_exp.choices import DeviceKind
from otil_exp.compile_cache import check_compile_cache


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
