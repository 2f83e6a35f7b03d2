"""The page: whole, escaped, small, and right about runs that failed or are half-done."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from PIL import Image

from otil_exp.report.collect import collect, find_folders
from otil_exp.report.page import render
from otil_exp.report.pictures import prompt_rows
from report.folders import add_pictures, make_grid, make_reference, make_run

EVIL = '<script>alert(1)</script> "quoted" & {{ 7 * 7 }} $x$'


def page(grid: Path, side: int = 64, limit: int | None = None) -> str:
    return render(collect(find_folders([grid])), grid, side, limit)


def test_a_grid_has_table_plots_pictures_and_provenance(tmp_path: Path) -> None:
    make_grid(tmp_path)
    html = page(tmp_path)
    assert html.count('<b class="best">') == 4  # in the note, and in three columns that two methods have
    assert html.count("<svg ") - html.count('class="profile') - html.count('class="swatch') == 3
    assert html.count('class="own"') == 6
    assert html.count('class="difference"') == 4
    assert html.count('<i class="row" style="--at: 50.000%">') == 2
    for fact in ("torch 2.11.0", "0123456789abcdef", "G, 4 visible", "1otil", "seam 8.00", "2.00x"):
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


def test_what_fp8_cut_stands_in_the_page(tmp_path: Path) -> None:
    calibrated = {"kind": "fp8", "layers": 42, "calibrated_on": {"prompt": EVIL, "seed": 0, "steps": 2}}
    make_run(tmp_path, "1", products=calibrated | {"overflow": 7, "overflow_worst": {"up.ff": 6, "down.ff": 1}})
    make_run(tmp_path, "2", products=calibrated | {"overflow": 0, "overflow_worst": {}})
    make_run(tmp_path, "3")
    first, second = re.findall("<dt>products</dt><dd>(.*?)</dd>", page(tmp_path))
    assert first.startswith("fp8 in 42 layers, scales of prompt &lt;script&gt;")
    assert first.endswith("; 7 values cut, most in up.ff")
    assert second.endswith("; 0 values cut")


def test_a_half_done_run_and_missing_metrics_make_a_page(tmp_path: Path) -> None:
    make_reference(tmp_path)
    make_run(tmp_path, "1", status="running", ended=None, metrics={"ref/psnr": 30.0})
    bare = make_run(tmp_path, "2")
    (bare.path / "record.json").unlink()
    html = page(tmp_path)
    assert "not yet" in html
    assert html.count("no picture (running)") == 2
    assert '<span class="status">missing</span>' in html
    assert f"never began: {bare.path}" in html


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


def test_one_broken_file_costs_its_own_figure_alone(tmp_path: Path) -> None:
    reference, otil, _ = make_grid(tmp_path)
    whole = otil.image_path(0).read_bytes()
    otil.image_path(0).write_bytes(whole[: len(whole) // 2])
    otil.image_path(1).write_text("no picture at all")
    reference.image_path(1).unlink()
    html = page(tmp_path)
    assert f"broken picture {otil.image_path(0)}" in html
    assert f"broken picture {otil.image_path(1)}" in html
    assert f"no difference: the reference&#39;s {reference.image_path(1)} is not there" in html
    assert f"no picture: {reference.image_path(1)} is not there" in html
    assert html.count('class="own"') == 3  # the reference's first, and both of full_sync
    assert html.count('class="difference"') == 1


def test_a_broken_folder_is_a_row_with_its_path(tmp_path: Path) -> None:
    make_grid(tmp_path)
    broken = make_run(tmp_path, "3")
    (broken.path / "metrics.json").write_text("{")
    html = page(tmp_path)
    assert '<span class="status">broken</span>' in html
    assert html.count(str(broken.path / "metrics.json")) >= 1


def test_errors_and_n_stand_in_the_cells_and_pairs_in_a_table(tmp_path: Path) -> None:
    for name, values in (("a", (30.0, 31.0, 32.0)), ("b", (29.0, 29.0, 29.0))):
        per_image = {f"{i:02d}": value for i, value in enumerate(values)}
        psnr = {"value": sum(values) / 3, "n": 3, "standard_error": 0.58, "per_image": per_image}
        make_run(tmp_path, name, metrics={"ref/psnr": psnr}, method=name)
    html = page(tmp_path)
    assert html.count('<span class="error"> ±0.58</span>') == 2
    assert '<span class="n">n 3</span>' in html
    assert "-2.00 ±0.58" in html


def test_a_long_prompt_is_folded_and_stands_in_the_page_once(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(200))
    prompts = [{"index": 0, "text": text, "seed": 0}]
    make_reference(tmp_path, prompts=prompts)
    add_pictures(make_run(tmp_path, "1", prompts=prompts))
    html = page(tmp_path)
    assert html.count("word199") == 1
    assert "<summary><span>00</span> word0 " in html
    assert 'alt="otil 4gpu_split, prompt 00"' in html


def test_without_a_limit_prompts_are_shown_up_to_a_budget_of_bytes(tmp_path: Path) -> None:
    make_grid(tmp_path)
    runs = collect(find_folders([tmp_path]))
    whole = prompt_rows(runs, tmp_path, 64)
    first = prompt_rows(runs, tmp_path, 64, budget=1)
    assert (len(whole.rows), len(first.rows), first.of) == (2, 1, 2)
    assert len(prompt_rows(runs, tmp_path, 64, limit=2, budget=1).rows) == 2
    size = sum(row.bytes for row in whole.rows)
    assert size <= len(page(tmp_path)) < size + 100_000
