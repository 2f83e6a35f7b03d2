"""The page: whole, escaped, small, and right about runs that failed or are half-done."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from PIL import Image

from otil_exp.report.collect import collect, find_folders
from otil_exp.report.page import render
from report.folders import add_pictures, make_grid, make_reference, make_run

EVIL = '<script>alert(1)</script> "quoted" & {{ 7 * 7 }} $x$'


def page(grid: Path, side: int = 64, limit: int | None = None) -> str:
    return render(collect(find_folders([grid])), grid, side, limit)


def test_a_grid_has_table_plots_pictures_and_provenance(tmp_path: Path) -> None:
    make_grid(tmp_path)
    html = page(tmp_path)
    assert html.count('<b class="best">') == 4  # in the note, and in three columns that two methods have
    assert html.count("<svg ") - html.count('class="profile') == 3
    assert html.count('class="own"') == 6
    assert html.count('class="difference"') == 4
    assert html.count('<i class="row" style="--at: 50.000%">') == 2
    for fact in ("torch 2.11.0", "0123456789abcdef", "4 x G", "1otil", "seam 8.00", "2.00x"):
        assert fact in html
    assert "Before you compare" not in html


def test_what_others_wrote_is_escaped(tmp_path: Path) -> None:
    make_reference(tmp_path, prompts=[{"index": 0, "text": EVIL, "seed": 0}])
    evil = make_run(
        tmp_path,
        "1",
        method=EVIL,
        status="failed",
        failed_rank=1,
        error=EVIL,
        traceback=EVIL,
        host=EVIL,
        prompts=[{"index": 0, "text": EVIL, "seed": 0}],
        metrics={"latency/step_ms": 1.0, "ref/psnr": {"value": None, "missing": EVIL}},
        config={"name": EVIL},
    )
    add_pictures(evil)
    html = page(tmp_path)
    assert html.count("<script>") == 1  # the page's own
    assert html.count("alert(1)") >= 6
    assert "{{ 7 * 7 }}" in html
    assert "alert(1)</script>" not in html


def test_a_failed_run_says_which_rank_and_why_and_shows_what_it_made(tmp_path: Path) -> None:
    make_reference(tmp_path)
    failed = make_run(tmp_path, "1", status="failed", failed_rank=3, error="ValueError: x < y", traceback="line 7")
    failed.write_image(0, Image.new("RGB", (16, 16)))
    html = page(tmp_path)
    assert "rank 3: ValueError: x &lt; y" in html
    assert "line 7" in html
    assert html.count("no picture (failed)") == 1


def test_a_half_done_run_and_missing_metrics_make_a_page(tmp_path: Path) -> None:
    make_reference(tmp_path)
    make_run(tmp_path, "1", status="running", ended=None, metrics={"ref/psnr": 30.0})
    bare = make_run(tmp_path, "2")
    (bare.path / "record.json").unlink()
    html = page(tmp_path)
    assert "not yet" in html
    assert html.count("no picture (running)") == 2
    assert '<span class="status">missing</span>' in html


def test_runs_without_any_metric_or_picture_make_a_page(tmp_path: Path) -> None:
    make_run(tmp_path, "1", prompts=[])
    html = page(tmp_path)
    assert "Nothing to draw" in html
    assert "No run has pictures" in html


def test_links_to_full_size_pictures_exist_wherever_the_page_lies(tmp_path: Path) -> None:
    make_grid(tmp_path / "grid with space")
    for folder in (tmp_path / "grid with space", tmp_path / "elsewhere" / "deep"):
        folder.mkdir(parents=True, exist_ok=True)
        html = render(collect(find_folders([tmp_path / "grid with space"])), folder, 64)
        links = re.findall(r'<a href="([^"#]+)" title="full size"', html)
        assert len(links) == 6
        assert all((folder / unquote(link)).is_file() for link in links)


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    make_grid(tmp_path)
    html = page(tmp_path)
    sources = re.findall(r'\b(?:src|xlink:href)="([^"]*)"', html)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert not re.findall(r"@import|url\((?!#|&quot;|\"\$)", html)


def test_a_run_shown_alone_has_its_reference_s_pictures_beside(tmp_path: Path) -> None:
    _, otil, _ = make_grid(tmp_path)
    html = render(collect([otil]), tmp_path, 64)
    assert html.count("0ref/images/0") == 2
    assert html.count('data-reference="0"') == 2
    assert html.count('data-run="0"') == 2


def test_a_benchmark_makes_no_pictures_and_is_not_missed_among_them(tmp_path: Path) -> None:
    make_grid(tmp_path)
    make_run(tmp_path, "3", config={"mode": "benchmark"}, metrics={"latency/image_s": 1.5})
    html = page(tmp_path)
    assert "no picture" not in html
    assert "s/image" in html
    assert "mode differs: generate in runs 1-3; benchmark in run 4" in html


def test_prompts_can_be_limited(tmp_path: Path) -> None:
    make_grid(tmp_path)
    assert page(tmp_path, limit=1).count("<article") == 1


def test_a_thousand_pictures_stay_a_small_page(tmp_path: Path) -> None:
    """Noise is the worst case: 64 pixels a side of it take less than 20 kB with the difference to the reference."""
    prompts = [{"index": i, "text": f"prompt {i}", "seed": i} for i in range(500)]
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    large = {"config": {"height": 64, "width": 64}, "prompts": prompts}
    for folder in (make_reference(tmp_path, **large), make_run(tmp_path, "1", **large)):
        for prompt in prompts:
            folder.write_image(prompt["index"], picture)
    html = page(tmp_path)
    assert html.count('class="own"') == 1000
    assert html.count('loading="lazy"') == 1500
    assert len(html) < 20_000_000
