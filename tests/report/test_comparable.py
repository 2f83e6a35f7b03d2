"""Runs that must not be compared are said to be so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otil_exp.report.collect import collect
from otil_exp.report.comparable import commit, machine, numbers, warnings
from report.folders import make_grid, make_reference, make_run


def test_a_sound_grid_has_no_warning(tmp_path: Path) -> None:
    assert warnings(collect(make_grid(tmp_path))) == []


@pytest.mark.parametrize(
    ("config", "record", "said"),
    [
        ({"model": {"name": "sdxl", "source": "x/y", "dtype": "float16"}}, {}, "model differs"),
        ({"num_inference_steps": 50}, {}, "steps differs: 4 in runs 1-2; 50 in run 3"),
        ({"height": 32}, {}, "size differs: 16x16 in runs 1-2; 16x32 in run 3"),
        ({"groupnorm": "upstream"}, {}, "groupnorm differs"),
        ({}, {"gpus": ["H200"] * 4}, "machine differs: 4 x G in runs 1-2; 4 x H200 in run 3"),
        ({"engine": {"name": "cuda_graph"}}, {}, "engine differs"),
        ({}, {"versions": {"torch": "2.12.0", "diffusers": "0.42.0"}}, "torch differs"),
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
    [warning] = warnings(collect(folders))
    assert said in warning


def test_runs_without_a_reference_are_named(tmp_path: Path) -> None:
    [warning] = warnings(collect([make_run(tmp_path, "1")]))
    assert warning.startswith("No finished reference run beside run 1: run the same command with preset=reference")


def test_a_machine_is_its_gpus_or_its_cpu(tmp_path: Path) -> None:
    gpu, cpu = collect([make_run(tmp_path, "1"), make_run(tmp_path, "2", device="cpu")])
    assert (machine(gpu), machine(cpu)) == ("4 x G", "C, 8 cores")


def test_a_commit_with_changed_files_is_another_one(tmp_path: Path) -> None:
    commits = {"1": "a" * 40, "2": f"{'a' * 40}-dirty", "3": None}
    runs = collect([make_run(tmp_path, name, git_commit=found) for name, found in commits.items()])
    assert [commit(run) for run in runs] == ["aaaaaaaaaa", "aaaaaaaaaa-dirty", "none"]


def test_numbers_of_runs_are_joined_to_spans(tmp_path: Path) -> None:
    runs = collect([make_run(tmp_path, str(i)) for i in range(1, 8)])
    assert numbers([runs[0], runs[1], runs[2], runs[6]]) == "runs 1-3, 7"
    assert numbers(runs[4:5]) == "run 5"
