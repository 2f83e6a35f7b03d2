"""Published beside measured: which line a run is set beside, the difference by hand, and what does not match."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from otil_exp.published.tables import shipped
from otil_exp.report.collect import collect, find_folders
from otil_exp.report.command import main
from otil_exp.report.page import render
from otil_exp.report.published import Match, beside_published
from otil_exp.run_folder.folder import RunFolder
from report.folders import make_reference, make_run

SDXL: dict[str, Any] = {
    "height": 1024,
    "width": 1024,
    "num_inference_steps": 50,
    "groupnorm": "upstream",
    "mode": "benchmark",
    "model": {"name": "sdxl", "architecture": "sdxl", "source": "stabilityai/x", "dtype": "float16"},
    "engine": {"name": "cuda_graph"},
}
A100: dict[str, Any] = {
    "gpus": ["NVIDIA A100-SXM4-80GB"] * 2,
    "gpu_links": "GPU0 X NV12\nGPU1 NV12 X",
    "versions": {"torch": "2.2.1+cu121"},
}
TWO: dict[str, Any] = {
    "method": "distrifusion",
    "topology": {"name": "2gpu_nosplit", "world_size": 2, "split_batch": False},
    "effective": {"warmup_steps": 4, "preset": {"sync_mode": "corrected_async_gn"}},
}


def a_run(grid: Path, name: str = "1", *, config: dict[str, Any] | None = None, **more: Any) -> RunFolder:
    metrics = more.pop("metrics", {"latency/image_s": 2.5})
    return make_run(grid, name, config=SDXL | (config or {}), metrics=metrics, **(TWO | A100 | more))


def matches(grid: Path, name: str = "1") -> dict[str, Match]:
    """Of a run, by paper and table."""
    found = beside_published(collect(find_folders([grid])), shipped()[1]).matches
    own = [match for match in found if match.run.folder.path.name == name]
    return {f"{match.line.table.paper}, {match.line.table.name}": match for match in own}


def test_times_and_speed_up_are_set_beside_the_table_s(tmp_path: Path) -> None:
    """DistriFusion on 2 GPUs: 3.35 s, 1.5x. 2.5 s of 5 s is 2x: -0.85 s, -25.4 %; +0.5, +33.3 %."""
    make_reference(tmp_path, config=SDXL, metrics={"latency/image_s": 5.0}, **A100)
    a_run(tmp_path)
    found = matches(tmp_path)["distrifusion, Table 1, 50 steps"]
    figures = {figure.header: figure for figure in found.figures}
    seconds, times = figures["s/image"], figures["speed-up"]
    assert (seconds.published, seconds.measured, seconds.difference) == ("3.35", "2.50", "-0.85 (-25.4 %)")
    assert (times.published, times.measured, times.difference) == ("1.50", "2.00", "+0.50 (+33.3 %)")
    assert (figures["PSNR dB"].published, figures["PSNR dB"].measured) == ("24.60", "-")
    assert found.apart == []


def test_what_does_not_match_is_said(tmp_path: Path) -> None:
    other = {"gpus": ["NVIDIA H200"] * 2, "gpu_links": "GPU0 X PHB", "versions": {"torch": "2.11.0"}}
    effective = TWO["effective"] | {"warmup_steps": 1}
    a_run(tmp_path, config={"groupnorm": "exact", "engine": {"name": "eager"}}, effective=effective, **other)
    assert matches(tmp_path)["distrifusion, Table 1, 50 steps"].apart == [
        "warm-up 1, published 4",
        "groupnorm exact, published upstream",
        "GPU NVIDIA H200, published A100 80 GB SXM",
        "interconnect PCIe, published NVLink",
        "PyTorch 2.11.0, published 2.2",
        "engine eager, published cuda_graph",
    ]


def test_what_the_source_does_not_say_is_said_to_be_unknown(tmp_path: Path) -> None:
    effective = {"warmup_steps": 4, "preset": {"transmit": {"block_size": 8, "score": "cosine"}}}
    a_run(tmp_path, method="guide", effective=effective, config={"k": {"budget": 0.25}})
    found = matches(tmp_path)
    assert set(found) == {"otil, SDXL", "otil, block size, SDXL"}
    assert found["otil, SDXL"].apart[-1] == "not published: split, PyTorch, engine"
    assert found["otil, SDXL"].line.paper.second_hand


@pytest.mark.parametrize(
    ("config", "record"),
    [
        ({"num_inference_steps": 25}, {}),
        ({"height": 2048}, {}),
        ({"scheduler": "euler"}, {}),
        ({"model": {"name": "shapes", "architecture": "shapes", "source": "package"}}, {}),
        ({}, {"topology": {"world_size": 8, "split_batch": True}}),
        ({}, {"topology": {"world_size": 3, "split_batch": False}}),
        ({}, {"effective": {"preset": {"sync_mode": "stale_gn"}}}),
        ({}, {"method": "balanced"}),
        ({}, {"status": "failed"}),
    ],
)
def test_a_run_of_other_steps_size_scheduler_model_gpus_or_settings_is_beside_nothing(
    tmp_path: Path, config: dict[str, Any], record: dict[str, Any]
) -> None:
    a_run(tmp_path, config=config, **record)
    assert matches(tmp_path) == {}


def test_a_run_without_a_line_says_what_the_nearest_has_other(tmp_path: Path) -> None:
    a_run(tmp_path, config={"num_inference_steps": 4, "scheduler": "euler"})
    a_run(tmp_path, "2", method="step_reuse")
    published = beside_published(collect(find_folders([tmp_path])), shipped()[1])
    assert [why for _, why in published.unmatched] == [
        "nearest is DistriFusion (CVPR 2024), Table 1, 50 steps: DistriFusion, 2 GPUs; other: steps 4, published 50; "
        "scheduler euler, published ddim",
        "no published figure of step_reuse with these settings",
    ]


def test_scores_say_another_resize_another_number_and_another_network(tmp_path: Path) -> None:
    metrics = {"fid/orig": {"value": 5.0, "n": 100}, "ref/psnr": {"value": 25.0, "n": 5000, "standard_error": 0.1}}
    a_run(tmp_path, metrics=metrics, config={"mode": "generate"})
    found = matches(tmp_path)["distrifusion, Table 1, 50 steps"]
    figures = {figure.header: figure for figure in found.figures}
    fid, psnr = figures["clean-FID w/ orig."], figures["PSNR dB"]
    assert (fid.published, fid.measured, fid.difference) == ("4.86", "5.00", "+0.14 (+2.9 %)")
    assert "not as clean-fid" in fid.notes[0]
    assert (psnr.measured, psnr.difference, psnr.notes) == ("25.00 ±0.10", "+0.40 (+1.6 %)", ())
    assert figures["s/image"].notes == ("measured by mode=benchmark",)


def test_a_time_that_means_nothing_and_pictures_of_random_weights_are_not_compared(tmp_path: Path) -> None:
    both = {"latency/image_s": 2.5, "ref/psnr": 20.0}
    a_run(tmp_path, times_meaningless="all ranks shared one GPU", metrics=both)
    a_run(tmp_path, "2", config={"model": SDXL["model"] | {"source": "random"}}, metrics=both)
    shared, random = (
        {figure.header: figure for figure in matches(tmp_path, name)["distrifusion, Table 1, 50 steps"].figures}
        for name in ("1", "2")
    )
    assert (shared["s/image"].measured, random["PSNR dB"].measured) == ("-", "-")
    assert shared["s/image"].notes == ("its time means nothing: all ranks shared one GPU",)
    assert (shared["PSNR dB"].measured, random["s/image"].measured) == ("20.00", "2.50")


def without_time(page: str) -> str:
    return re.sub(r"\s+|Made .* UTC", "", page)


def test_the_page_has_a_section_more_and_nothing_else_changes(tmp_path: Path) -> None:
    """No best mark, no front and no table takes part."""
    make_reference(tmp_path, config=SDXL, metrics={"latency/image_s": 5.0}, **A100)
    a_run(tmp_path)
    runs = collect(find_folders([tmp_path]))
    without, section = render(runs, tmp_path, 64), beside_published(runs, shipped()[1])
    page = render(runs, tmp_path, 64, published=section)
    start, end = page.index('<section id="published">'), page.index('<section id="plots">')
    rest = (page[:start] + page[end:]).replace('<a href="#published">Published</a>', "")
    assert without_time(rest) == without_time(without)
    assert "-0.85 (-25.4 %)" in page[start:end]


def test_the_command_puts_them_into_page_and_markdown_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path)
    assert main([str(tmp_path), "--published"]) == 0
    assert 'id="published"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert main([str(tmp_path), "--published", "--markdown"]) == 0
    assert "| s/image |  | 3.35 | 2.50 | -0.85 (-25.4 %) |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--published", "--csv"])
    assert "--markdown" in capsys.readouterr().err
