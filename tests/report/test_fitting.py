"""The table of a grid on terminals of every width."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from otil_exp.report.table import summary
from report.folders import make_run


def shown(width: int, tmp_path: Path) -> list[str]:
    metrics = {"latency/step_ms": 12.3, "ref/psnr": 31.42}
    runs = [make_run(tmp_path, name, method=name, metrics=metrics) for name in ("distrifusion", "otil")]
    out = StringIO()
    Console(file=out, width=width).print(summary(runs))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 200])
def test_a_wide_one_shows_a_table(width: int, tmp_path: Path) -> None:
    [row] = [line for line in shown(width, tmp_path) if line.strip().startswith("otil")]
    assert "12.3" in row
    assert "31.42" in row
    assert row.endswith("done")


@pytest.mark.parametrize("width", [20, 40])
def test_a_narrow_one_shows_run_by_run_and_no_word_is_cut(width: int, tmp_path: Path) -> None:
    lines = shown(width, tmp_path)
    assert all(len(line) <= width for line in lines)
    assert "distrifusion: done" in lines
    assert "otil: done" in lines
    after = " ".join(" ".join(lines[lines.index("otil: done") + 1 :]).split())
    assert "ms/step 12.3," in after
    assert "PSNR dB 31.42" in after


@pytest.mark.parametrize("width", range(60, 121, 4))
def test_what_tells_runs_apart_is_never_cut(width: int, tmp_path: Path) -> None:
    """Cells that differ in a codec alone: at every width each word of a row, of the head too, is there whole."""
    metrics = {"latency/step_ms": 1234.5, "ref/psnr": 31.42, "ref/step_levels": 0.92}
    runs = [
        make_run(tmp_path, name, method="otil_context", metrics=metrics, config={"codec": {"quantizer": name}})
        for name in ("residual4", "none")
    ]
    out = StringIO()
    Console(file=out, width=width).print(summary(runs))
    text = out.getvalue()
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for word in ("quantizer=residual4", "quantizer=none", "otil_context", "1234.5", "31.42", "4gpu_split", "topology"):
        assert word in text, word
