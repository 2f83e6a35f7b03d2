"""A published table from nothing to the page, small: its reference and one of its cells on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.job import Job
from otil_exp.report.command import main

pytestmark = pytest.mark.ranks


def test_the_small_variant_runs_from_nothing_to_the_page(composed: Compose, tmp_path: Path) -> None:
    words = ("experiment=published/distrifusion", "+experiment/published=small", "num_inference_steps=3")
    few = ("warmup_steps=1", "topology=2gpu_nosplit", "metrics=pairwise")
    cells = [prepare(composed(*words, *few, f"preset={preset}")) for preset in ("reference", "distrifusion")]
    failures: dict[str, str] = {}
    for cell in cells:
        Job(say=print).run([cell], failures)
    assert failures == {}
    assert cells[1].folder.metrics["ref/psnr"]["n"] == 2
    assert main([str(tmp_path / "published_small"), "--published"]) == 0
    page = (tmp_path / "published_small" / "report.html").read_text(encoding="utf-8")
    assert "nearest is DistriFusion (CVPR 2024)" in page
    assert "model shapes, published sdxl" in page
