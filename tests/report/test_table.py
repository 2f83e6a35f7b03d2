"""The summary table says what ran, what it cost, and what failed."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.report.table import summary
from otil_exp.run.failure import note_failure
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.naming import names, variants
from report.folders import make_run


def shown(*folders: RunFolder, width: int = 100) -> str:
    console = Console(width=width, record=True, quiet=False)
    with console.capture() as capture:
        console.print(summary(folders))
    return capture.get()


def test_a_run_shows_its_figures_and_its_pictures(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a")
    folder.images.mkdir(parents=True)
    folder.update_record(
        status="done",
        method="otil",
        topology={"name": "4gpu_split", "world_size": 4, "split_batch": True},
        effective={"k": 32, "refresh_period": 10},
    )
    folder.update_metrics(
        {
            "latency/step_ms": {"value": 12.34},
            "traffic/bytes_sent_per_step": {"value": 1_234_567},
            "ref/psnr": {"value": 31.416},
            "ref/step_levels": {"value": 0.517},
        }
    )
    text = shown(folder)
    for expected in ("otil", "4gpu_split", "32", "10", "12.3", "1.235", "31.42", "0.52", "done"):
        assert expected in text
    assert str(folder.images) in text.replace("\n", "")


def test_a_failure_names_its_rank_and_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "b")
    folder.update_record(status="failed", method="otil", failed_rank=2, error="ValueError: [bold]no[/bold]")
    assert "otil failed on rank 2: ValueError: [bold]no[/bold]" in shown(folder)


def test_times_of_a_shared_gpu_are_called_meaningless(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "c")
    folder.update_record(status="done", method="otil", times_meaningless="all ranks shared one GPU (device=shared_gpu)")
    assert "mean nothing" in shown(folder)


def test_a_cell_that_never_started_is_missing(tmp_path: Path) -> None:
    assert "missing" in shown(RunFolder(tmp_path / "d"))


def test_cells_that_never_started_are_told_apart(tmp_path: Path, composed: Compose) -> None:
    settings = [("preset=otil", "k=k32", "refresh=every10"), ("preset=guide", "guidance_scale=3"), ("preset=guide",)]
    cells = [prepare(composed("device=cpu", "topology=4gpu_split", f"output_dir={tmp_path}", *its)) for its in settings]
    lines = [line for line in shown(*(cell.folder for cell in cells)).splitlines() if "missing" in line]
    assert [line.split()[:4] for line in lines] == [
        ["otil", "4gpu_split", "32", "10"],
        ["guide", "guidance_scale=3.0", "4gpu_split", "32"],
        ["guide", f"guidance_scale={cells[2].effective.guidance_scale}", "4gpu_split", "32"],
    ]


def test_runs_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    folders = [RunFolder(tmp_path / mode) for mode in ("stale_gn", "sync_gn")]
    for folder in folders:
        folder.update_record(status="done", method="distrifusion", topology={"world_size": 4}, effective={"k": None})
        preset = {"name": "distrifusion", "sync_mode": folder.path.name, "split_scheme": None}
        folder.write_config({"name": folder.path.name, "preset": preset, "height": 256})
    assert variants(folders) == ["sync_mode=stale_gn", "sync_mode=sync_gn"]
    assert variants(folders[:1]) == [""]


def test_what_differs_is_named_as_a_user_types_it(tmp_path: Path) -> None:
    configs = (
        {"engine": {"name": "eager"}, "preset": {"gn_sync": True, "stale": None}, "seed": 1},
        {"engine": {"name": "compiled"}, "preset": {"gn_sync": "fused", "stale": "each"}, "seed": 0},
    )
    folders = [make_run(tmp_path, str(i), config=config) for i, config in enumerate(configs)]
    assert variants(folders) == [
        "engine=eager gn_sync=true stale=null seed=1",
        "engine=compiled gn_sync=fused stale=each seed=0",
    ]


def test_a_benchmark_shows_its_time_for_a_whole_image(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "e")
    folder.update_record(status="done", method="otil")
    assert "s/image" not in shown(folder)
    folder.update_metrics({"latency/image_s": {"value": 1.2345}})
    assert "1.23" in shown(folder)


def test_errors_are_shown_where_the_console_is_wide_enough(tmp_path: Path) -> None:
    psnr = {"value": 31.416, "standard_error": 1.268, "n": 10}
    folder = make_run(tmp_path, "1", metrics={"ref/psnr": psnr, "ref/step_levels": 0.5})
    assert "31.42 ±1.27" in shown(folder, width=120)
    narrow = shown(folder, width=76)
    assert "31.42" in narrow
    assert "±" not in narrow


def test_a_broken_folder_is_a_row_and_said_with_its_path(tmp_path: Path) -> None:
    broken = make_run(tmp_path, "2")
    (broken.path / "record.json").write_text("{")
    text = shown(make_run(tmp_path, "1"), broken)
    assert "broken" in text
    assert str(broken.path / "record.json") in text.replace("\n", "")


def test_a_renewal_that_rolls_is_said(tmp_path: Path) -> None:
    at_once, rolling = {"k": 32, "refresh_period": 10}, {"k": 32, "refresh_period": 10, "refresh_rolling": True}
    text = shown(make_run(tmp_path, "1", effective=at_once), make_run(tmp_path, "2", effective=rolling))
    assert text.count("rolling10") == 1


def test_names_differ_where_cells_differ(tmp_path: Path, composed: Compose) -> None:
    codecs = ("none", "fp8", "int8", "residual", "residual4")
    settings = [("preset=balanced", f"codec={codec}") for codec in codecs]
    base = ("device=cpu", "topology=4gpu_split", f"output_dir={tmp_path}")
    found = names([prepare(composed(*base, *its)).folder for its in settings])
    assert len(set(found)) == 5
    assert found[1] == "balanced 4gpu_split every10 quantizer=fp8 residual=false"


def test_names_say_what_a_codec_reaches_and_whether_renewal_rolls(tmp_path: Path, composed: Compose) -> None:
    settings = [["codec=residual4"], ["codec=residual4", "codec.scope=all"], ["refresh=rolling10"]]
    base = ("device=cpu", "preset=otil", "topology=4gpu_nosplit", f"output_dir={tmp_path}")
    late, everything, rolling = names([prepare(composed(*base, *its)).folder for its in settings])
    assert late == "otil 4gpu_nosplit k16 every10 scope=late"
    assert everything == "otil 4gpu_nosplit k16 every10 scope=all"
    assert rolling == "otil 4gpu_nosplit k16 rolling10"


def test_the_table_comes_whatever_a_folder_lacks(tmp_path: Path) -> None:
    """A rank that cannot join the others fails before its record is begun: only the failure is noted."""
    empty = RunFolder(tmp_path / "empty")
    early = RunFolder(tmp_path / "early", planned={"method": "otil", "topology": {"world_size": 4}})
    note_failure(early, 1, "RuntimeError: no interface eth99", None)
    unplanned = RunFolder(tmp_path / "unplanned")
    note_failure(unplanned, 0, "RuntimeError: no interface eth99", None)
    bare = RunFolder(tmp_path / "bare")
    bare.update_record(status="failed")
    pictures = RunFolder(tmp_path / "pictures")
    pictures.images.mkdir(parents=True)
    text = " ".join(shown(empty, early, unplanned, bare, pictures).split())
    assert "otil failed on rank 1: RuntimeError: no interface eth99" in text
    assert "unknown (unplanned) failed on rank 0: RuntimeError: no interface eth99" in text
    assert "unknown (bare) failed on rank ?: ?" in text
    assert "missing" in text


def test_columns_of_stages_and_of_seams_are_there_where_a_run_has_them(tmp_path: Path) -> None:
    cut_by_depth = make_run(tmp_path, "1", method="fold", metrics={"stages/count": 2.0, "stages/oldest": 7.0})
    sliced = make_run(tmp_path, "2", metrics={"ref/step_levels": 0.5})
    for folders, there in (
        ((cut_by_depth,), (True, False)),
        ((sliced,), (False, True)),
        ((cut_by_depth, sliced), (True, True)),
    ):
        text = shown(*folders, width=140)
        assert ("oldest" in text, "seam," in text) == there
    line = next(line for line in shown(cut_by_depth, width=140).splitlines() if "fold" in line)
    assert {"2", "7"} < set(line.split())
