"""What a user typed is shown as it was typed."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

import otil_exp
from otil_exp.prompts import Prompt
from otil_exp.report.table import summary
from otil_exp.run import generation
from otil_exp.terminal import console
from report.folders import make_run

TYPED = "a [/INST] b [old] [red]c[/red] :smile: [link=x]"
"""Raises a MarkupError, loses words, turns red or into a picture wherever rich reads it as markup."""


def test_a_console_prints_words_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(TYPED)
    console(stderr=True).print(TYPED)
    assert tuple(capsys.readouterr()) == (f"{TYPED}\n", f"{TYPED}\n")


def test_the_table_shows_names_paths_and_errors_as_they_are(tmp_path: Path) -> None:
    """In any console, one with markup as well."""
    runs = [
        make_run(tmp_path / "runs [old]", TYPED, method=TYPED, status="failed", failed_rank=0, error=TYPED),
        make_run(tmp_path / "runs [old]", "other", method="otil"),
    ]
    for folder in runs:
        folder.images.mkdir()
    out = StringIO()
    Console(file=out, width=400).print(summary(runs))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert any(row[: len(TYPED.split())] == TYPED.split() for row in rows)
    assert f"failed on rank 0: {TYPED}" in out.getvalue()
    assert f"{tmp_path}/runs [old]/{TYPED}/images" in out.getvalue()


def test_the_progress_bar_shows_the_prompt_as_it_is() -> None:
    pipeline = SimpleNamespace(ranks=SimpleNamespace(is_main=True), steps=[None] * 3)
    with generation._progress(pipeline, 1) as bar:  # type: ignore[arg-type]
        bar.begin(Prompt(index=7, text="a [/INST] b [red]", seed=0))
        progress: Progress = bar.progress
        shown = Console(width=120, file=StringIO(), record=True)
        shown.print(progress.get_renderable())
    assert "07 a [/INST] b [red] " in shown.export_text()


def test_no_other_place_makes_a_console() -> None:
    package = Path(otil_exp.__file__).parent
    sources = [path for root in (package, package.parent / "hydra_plugins") for path in root.rglob("*.py")]
    makers = {path.name for path in sources if re.search(r"\bConsole\(", path.read_text(encoding="utf-8"))}
    assert makers == {"terminal.py"}
