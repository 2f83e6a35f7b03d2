"""Runs are read from their folders, whatever state those are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp.report.collect import collect, find_folders
from report.folders import make_grid, make_reference, make_run


def test_folders_are_found_below_a_grid_and_as_named_references_first(tmp_path: Path) -> None:
    make_run(tmp_path, "aotil")
    make_reference(tmp_path, "zref")
    (tmp_path / "report.html").touch()
    assert [folder.path.name for folder in find_folders([tmp_path])] == ["zref", "aotil"]
    assert [folder.path.name for folder in find_folders([tmp_path / "aotil", tmp_path])] == ["zref", "aotil"]


def test_runs_are_ordered_by_method_ranks_and_k(tmp_path: Path) -> None:
    def make(name: str, ranks: int, split: bool, k: int | None, method: str = "otil") -> None:
        topology = {"name": f"{ranks}gpu_{'split' if split else 'nosplit'}", "world_size": ranks, "split_batch": split}
        effective = {"k": k, "refresh_period": 0}
        make_run(tmp_path, name, method=method, topology=topology, effective=effective)

    make("a", 8, True, 16)
    make("b", 4, False, 16)
    make("c", 4, True, 32)
    make("d", 4, True, 16)
    make("e", 8, True, None, method="balanced")
    assert [folder.path.name for folder in find_folders([tmp_path])] == ["e", "d", "c", "b", "a"]


def test_a_folder_without_runs_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name outputs/NAME or outputs/NAME/SIGNATURE"):
        find_folders([tmp_path])


def test_a_run_knows_its_reference_also_when_it_is_shown_alone(tmp_path: Path) -> None:
    _, otil, _ = make_grid(tmp_path)
    [run] = collect([otil])
    assert run.number == 1
    assert run.reference is not None
    assert run.reference.number == 0
    assert run.reference.value("latency/step_ms") == 40.0


def test_labels_say_what_runs_differ_in(tmp_path: Path) -> None:
    one = make_run(tmp_path, "1", effective={"k": 32, "refresh_period": 10})
    two = make_run(tmp_path, "2", config={"preset": {"cfg_repair": True}})
    three = make_run(tmp_path, "3", config={"preset": {"cfg_repair": False}})
    labels = [run.label for run in collect([one, two, three])]
    assert labels == [
        "otil 4gpu_split k32 every10",
        "otil 4gpu_split cfg_repair=true",
        "otil 4gpu_split cfg_repair=false",
    ]


def test_runs_that_differ_in_nothing_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = collect([make_run(tmp_path, "1"), make_run(tmp_path, "2")])
    assert [run.label for run in runs] == ["otil 4gpu_split (1)", "otil 4gpu_split (2)"]


@pytest.mark.parametrize("name", ["record.json", "metrics.json", "steps.csv", "config.yaml"])
def test_a_folder_that_was_cut_is_a_broken_run_and_the_others_go_on(tmp_path: Path, name: str) -> None:
    make_run(tmp_path, "1", metrics={"ref/psnr": 30.0})
    cut = make_run(tmp_path, "2", metrics={"ref/psnr": 31.0}).path / name
    cut.write_text('{"status": "do')
    whole, broken = sorted(collect(find_folders([tmp_path])), key=lambda run: run.folder.path)
    assert (whole.status, whole.value("ref/psnr")) == ("done", 30.0)
    assert (broken.status, broken.value("ref/psnr")) == ("broken", None)
    assert broken.reason is not None
    assert str(cut) in broken.reason


def test_a_run_that_only_has_a_config_says_that_it_never_began(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "1", config={"preset": {"name": "guide"}})
    (folder.path / "record.json").unlink()
    [run] = collect(find_folders([tmp_path]))
    assert (run.status, run.method, run.label, run.prompts, run.value("ref/psnr")) == (
        "missing",
        "guide",
        "guide",
        [],
        None,
    )
    assert run.reason == f"never began: {folder.path} has a config.yaml and no record.json"


def test_a_record_that_says_nothing_is_a_run_that_never_began(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{}")
    [run] = collect(find_folders([tmp_path]))
    assert run.reason == f"never began: {tmp_path / 'run'} has a record.json that says nothing"


def test_a_broken_run_does_not_make_the_others_names_longer(tmp_path: Path) -> None:
    make_run(tmp_path, "1", method="guide")
    (make_run(tmp_path, "2", method="guide").path / "config.yaml").unlink()
    assert {run.label for run in collect(find_folders([tmp_path]))} == {"guide 4gpu_split (1)", "guide 4gpu_split (2)"}


def test_one_cell_of_two_grids_has_two_names(tmp_path: Path) -> None:
    for grid in ("monday", "tuesday"):
        make_run(tmp_path / grid, "abc")
        make_run(tmp_path / grid, "def", method="guide")
    runs = collect(find_folders([tmp_path / "monday", tmp_path / "tuesday"]))
    assert sorted(run.label for run in runs) == [
        f"{method} 4gpu_split ({grid}/{name})"
        for method, name in (("guide", "def"), ("otil", "abc"))
        for grid in ("monday", "tuesday")
    ]


def test_a_value_that_is_no_number_is_none(tmp_path: Path) -> None:
    make_run(tmp_path, "1", metrics={"ref/psnr": float("nan"), "ref/ssim": 0.5})
    [run] = collect(find_folders([tmp_path]))
    assert (run.value("ref/psnr"), run.value("ref/ssim")) == (None, 0.5)
