"""Runs that must not be compared are said to be so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otil_exp.report.collect import collect, find_folders
from otil_exp.report.columns import columns
from otil_exp.report.comparable import commit, comparable, machine
from otil_exp.report.warn import numbers, warnings
from otil_exp.run_folder.folder import RunFolder
from report.folders import make_grid, make_reference, make_run

TIME, PSNR, FID = "latency/step_ms", "ref/psnr", "fid/gt"


def warned(*folders: RunFolder) -> list[str]:
    runs = collect(folders)
    return warnings(runs, columns(runs))


def test_a_sound_grid_has_no_warning(tmp_path: Path) -> None:
    assert warned(*make_grid(tmp_path)) == []


def same(tmp_path: Path, key: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs' values of a metric can be compared."""
    first, second = collect([make_run(tmp_path, "1", **one), make_run(tmp_path, "2", **other)])
    return comparable(first, second, key)


def test_times_need_one_model_of_gpu_whatever_the_number_of_gpus(tmp_path: Path) -> None:
    four, one, other = ({"gpus": gpus} for gpus in (["H200"] * 4, ["H200"], ["L40S"]))
    assert same(tmp_path, TIME, four, one)
    assert not same(tmp_path, TIME, four, other)
    assert same(tmp_path, PSNR, four, other)


def test_times_need_the_engine_that_ran(tmp_path: Path) -> None:
    asked = {"config": {"engine": {"name": "compiled"}}}
    ran, fell_back = (asked | {"engine_runs_as": words} for words in ("compiled", "eager, because it cannot"))
    assert not same(tmp_path, TIME, ran, fell_back)
    assert same(tmp_path, TIME, {"engine_runs_as": "eager"}, fell_back)


def test_scores_need_the_same_prompts_and_times_do_not(tmp_path: Path) -> None:
    fewer = {"prompts": [{"index": 0, "text": "a red circle", "seed": 0}]}
    assert not same(tmp_path, PSNR, {}, fewer)
    assert same(tmp_path, TIME, {}, fewer)


@pytest.mark.parametrize(
    ("field", "one", "other", "said"),
    [
        ("n", 100, 5000, "n differs: 100 in run 1; 5000 in run 2"),
        ("ground_truth", "coco 1a2b", "renders", "ground truth differs: coco 1a2b in run 1; renders in run 2"),
        (
            "ground_truth",
            {"path": "/a/coco", "count": 9, "digest": "1a"},
            {"path": "/a/coco", "count": 8, "digest": "2b"},
            "ground truth differs: coco (9 pictures, 1a) in run 1; coco (8 pictures, 2b) in run 2",
        ),
        ("resize", "bilinear", "bicubic", "preprocessing differs: bilinear in run 1; bicubic in run 2"),
        ("model", "clip-a", "clip-b", "scorer differs: clip-a in run 1; clip-b in run 2"),
    ],
)
def test_scores_need_the_same_judge(tmp_path: Path, field: str, one: Any, other: Any, said: str) -> None:
    base = {"value": 20.0, "n": 100, "model": "clip-a", "ground_truth": "renders"}
    found = [{"metrics": {FID: base | {field: value}}} for value in (one, other)]
    assert not same(tmp_path, FID, *found)
    words = warned(RunFolder(tmp_path / "1"), RunFolder(tmp_path / "2"))
    assert any(f"FID w/ GT is not comparable throughout, {said}" in sentence for sentence in words)


def test_one_ground_truth_on_two_machines_is_one(tmp_path: Path) -> None:
    truths = [{"path": f"/{machine}/coco", "count": 9, "digest": "1a"} for machine in ("node1", "home/me")]
    found = [{"metrics": {FID: {"value": 20.0, "n": 100, "ground_truth": truth}}} for truth in truths]
    assert same(tmp_path, FID, *found)


def test_an_engine_that_fell_back_is_named_with_its_reason(tmp_path: Path) -> None:
    asked = {"engine": {"name": "compiled"}}
    folders = [make_run(tmp_path, n, config=asked, engine_runs_as="eager, because of x") for n in ("1", "2")]
    assert "engine=compiled runs as eager, because of x (runs 1-2)." in warned(*folders)


@pytest.mark.parametrize(
    ("config", "record", "said"),
    [
        ({"model": {"name": "sdxl", "source": "x/y", "dtype": "float16"}}, {}, "model differs"),
        ({"num_inference_steps": 50}, {}, "steps differs: 4 in runs 1-2; 50 in run 3"),
        ({"height": 32}, {}, "size differs: 16x16 in runs 1-2; 16x32 in run 3"),
        ({"groupnorm": "upstream"}, {}, "groupnorm differs"),
        (
            {},
            {"gpus": ["H200"] * 4},
            "Times are not comparable throughout, machine differs: G in runs 1-2; H200 in run 3",
        ),
        ({"engine": {"name": "cuda_graph"}}, {}, "engine differs"),
        (
            {},
            {"versions": {"torch": "2.12.0", "diffusers": "0.42.0"}},
            "torch differs: 2.11.0 in runs 1-2; 2.12.0 in run 3: this may explain",
        ),
        ({}, {"git_commit": "ffff"}, "commit differs"),
        ({}, {"prompts": [{"index": 0, "text": "a red circle", "seed": 0}]}, "prompts differs"),
        (
            {},
            {"times_meaningless": "all ranks shared one GPU"},
            "Times mean nothing for run 3: all ranks",
        ),
    ],
)
def test_what_differs_is_named_with_its_runs(
    tmp_path: Path, config: dict[str, Any], record: dict[str, Any], said: str
) -> None:
    folders = [make_reference(tmp_path), make_run(tmp_path, "1"), make_run(tmp_path, "2", config=config, **record)]
    [warning] = [words for words in warned(*folders) if not words.startswith("No finished reference")]
    assert said in warning


def test_runs_without_a_reference_are_named(tmp_path: Path) -> None:
    [warning] = warned(make_run(tmp_path, "1"))
    assert warning.startswith("No finished reference run beside run 1: run the same command with preset=reference")


def test_a_machine_is_its_gpus_or_its_cpu(tmp_path: Path) -> None:
    gpu, cpu = collect([make_run(tmp_path, "1"), make_run(tmp_path, "2", device="cpu")])
    assert (machine(gpu), machine(cpu)) == ("G", "C, 8 cores")


def test_a_commit_with_changed_files_is_another_one(tmp_path: Path) -> None:
    commits = {"1": "a" * 40, "2": f"{'a' * 40}-dirty", "3": None}
    runs = collect([make_run(tmp_path, name, git_commit=found) for name, found in commits.items()])
    assert [commit(run) for run in runs] == ["aaaaaaaaaa", "aaaaaaaaaa-dirty", "none"]


def test_numbers_of_runs_are_joined_to_spans(tmp_path: Path) -> None:
    runs = collect([make_run(tmp_path, str(i)) for i in range(1, 8)])
    assert numbers([runs[0], runs[1], runs[2], runs[6]]) == "runs 1-3, 7"
    assert numbers(runs[4:5]) == "run 5"


def test_scores_against_a_reference_that_is_another_one_now_are_named(tmp_path: Path) -> None:
    """Made anew: one folder, another end. Gone: no folder. Still there: not a word."""
    make_reference(tmp_path / "a", ended="2026-01-01T00:05:00+00:00")
    for name, ended in (("1old", "2026-01-01T00:01:00+00:00"), ("2new", "2026-01-01T00:05:00+00:00")):
        make_run(tmp_path / "a", name, scored_with={"reference run": ["0ref", ended]})
    make_run(tmp_path / "b", "3alone", scored_with={"reference run": ["0ref", "2026-01-01T00:01:00+00:00"]}, method="x")
    words = "Scores against the reference of {} are from one that is gone or was made anew since"
    for grid, which in (("a", "run 2"), ("b", "run 1")):
        found = [one for one in warnings(collect(find_folders([tmp_path / grid])), []) if "made anew since" in one]
        assert [one.partition(":")[0] for one in found] == [words.format(which)]


def test_gpus_that_are_joined_otherwise_are_named(tmp_path: Path) -> None:
    """As `nvidia-smi topo -m` has them; a reference talks to nobody, whatever its machine has."""
    links = {"1": "GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X", "2": "GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X"}
    folders = [make_run(tmp_path, name, gpu_links=matrix, method=name) for name, matrix in links.items()]
    folders.append(make_reference(tmp_path, gpu_links=links["2"]))
    words = "Times are not comparable throughout, interconnect differs: NVLink in run 1; PCIe in run 2."
    assert words in warned(*folders)
    assert not [one for one in warned(folders[0], folders[2]) if "interconnect" in one]
