"""A run logged offline, read back with wandb's own command and held against the run folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_run import begun, fail_after_the_first_picture, rows_of, write_picture, write_results
from wandb_files import Logged, read, runs_of

from otil_exp.metrics.summary import entry
from otil_exp.run_folder.cell import Cell
from otil_exp.tracking import NoTracker, rescored, tracked
from otil_exp.tracking.keys import KEYS

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine where nobody has logged in."""
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))


def run(cell: Cell, prompts: tuple[int, ...] = (0, 1)) -> None:
    """A job that makes these pictures."""
    with tracked(cell.effective, cell.folder, is_main=True) as tracker:
        for prompt in prompts:
            write_picture(cell, prompt)
            tracker.steps(rows_of(prompt))
            tracker.picture(cell.prompts[prompt])
        write_results(cell)


def only(cell: Cell) -> Logged:
    [path] = runs_of(cell.folder)
    return read(path)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a user is told: wandb itself is silent on the terminal."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("otil_exp")]


def test_a_run_is_logged_under_documented_keys_alone(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    run(cell)
    logged = only(cell)
    metrics = cell.folder.metrics
    undocumented = [n for n in logged.names if n not in metrics and not any(key.matches(n) for key in KEYS)]
    assert not undocumented
    families = {key.name for key in KEYS if any(key.matches(name) for name in logged.names)}
    assert families == {key.name for key in KEYS} - {
        "difference/<prompt>",
        "seam_profile/columns/<prompt>_table",
        "<metric>/<spread>",
        "failure/error",
    }
    assert {key: logged.summary.get(key) for key in metrics} == {key: e["value"] for key, e in metrics.items()}
    assert (logged.run["run_group"], logged.run["display_name"]) == ("t", "balanced 2gpu_nosplit")
    assert logged.exit_code == 0
    assert logged.config["facts"]["topology"]["seams"] == ["row 128"]
    assert logged.config["preset"]["noise_gather"] is True
    assert logged.config["engine_runs_as"] == "eager"


def test_how_sure_a_value_is_stands_in_the_summary(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    with tracked(cell.effective, cell.folder, is_main=True):
        psnr = entry("ref/psnr", 30.0, 2, standard_error=1.5, per_image={"00": 28.5, "01": 31.5})
        time_ms = entry("latency/step_ms", 20.0, 4, median=19.0, p5=18.0, p95=30.0)
        few = entry("ref/ssim", 0.9, 1, standard_error=None)
        cell.folder.update_metrics({"ref/psnr": psnr, "latency/step_ms": time_ms, "ref/ssim": few})
    summary = only(cell).summary
    assert {key: value for key, value in summary.items() if key.count("/") == 2} == {
        "ref/psnr/standard_error": 1.5,
        "latency/step_ms/median": 19.0,
        "latency/step_ms/p5": 18.0,
        "latency/step_ms/p95": 30.0,
    }


def test_steps_are_rank_0_s_time_the_slowest_s_and_the_mean_of_what_was_sent(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    run(cell)
    steps = [entry for entry in only(cell).history if "step/ms" in entry]
    assert [entry["step/count"] for entry in steps] == [0, 1, 2, 3, 4, 5]
    last = steps[-1]  # prompt 1, step 2
    assert (last["step/ms"], last["step/ms_final"], last["step/ms_slowest"]) == (120, 120, 121)
    assert (last["step/bytes_sent"], last["step/collectives"], last["step/kind"]) == (2005, 2, "final")


def test_a_resumed_job_goes_on_with_the_same_run_and_repeats_nothing(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    fail_after_the_first_picture(cell)
    run(begun(tmp_path, "tracker=wandb_offline"), prompts=(1,))
    failed, resumed = (read(path) for path in runs_of(cell.folder))
    assert failed.run["run_id"] == resumed.run["run_id"]
    assert (failed.exit_code, failed.summary["failure/error"]) == (1, "RuntimeError: lost the connection")
    assert resumed.exit_code == 0
    assert max(entry["_step"] for entry in failed.history) < min(entry["_step"] for entry in resumed.history)
    assert {entry["step/prompt"] for entry in resumed.history if "step/prompt" in entry} == {1}


def test_repetitions_of_a_benchmark_follow_each_other(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline", "mode=benchmark")
    with tracked(cell.effective, cell.folder, is_main=True):
        cell.folder.write_steps([row._replace(repeat=repeat) for repeat in (0, 1) for row in rows_of(0)])
    steps = [entry for entry in only(cell).history if "step/ms" in entry]
    assert [(entry["step/count"], entry["step/repeat"]) for entry in steps] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (4, 1),
        (5, 1),
    ]


def test_filters_find_what_ran_and_not_what_was_typed(tmp_path: Path) -> None:
    """One rank is the reference, whatever method, k and refresh the grid has for its other cells."""
    cell = begun(tmp_path, "tracker=wandb_offline", "topology=1gpu", "preset=otil", "k.budget=0.25")
    run(cell)
    config = only(cell).config
    assert (config["topology"]["world_size"], config["preset"]["name"], config["k"]["budget"]) == (1, "reference", 0)
    assert (config["composed"]["preset"]["name"], config["composed"]["k"]["budget"]) == ("otil", 0.25)
    assert config["facts"]["is_reference"] is True


def test_cells_of_one_process_stage_in_their_own_folders(tmp_path: Path) -> None:
    cells = [begun(tmp_path, "tracker=wandb_offline", f"seed={seed}") for seed in (1, 2)]
    for cell in cells:
        run(cell)
        time.sleep(1.1)  # wandb names its folders by the second
    staged = [[p for p in (cell.folder.path / "wandb" / "artifacts").rglob("*") if p.is_file()] for cell in cells]
    assert len(staged[0]) == len(staged[1]) > 0


def test_a_user_s_own_staging_folder_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    cell = begun(tmp_path, "tracker=wandb_offline")
    run(cell)
    assert os.environ["WANDB_DATA_DIR"] == str(tmp_path / "data")
    assert not (cell.folder.path / "wandb" / "artifacts").exists()


def test_scores_that_are_made_later_reach_the_same_run(tmp_path: Path) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    run(cell)
    cell.folder.update_metrics({"ref/psnr": entry("ref/psnr", 31.5, 2, per_image={"00": 31.0, "01": 32.0})})
    time.sleep(1.1)
    rescored(cell.folder)
    first, later = (read(path) for path in runs_of(cell.folder))
    assert first.run["run_id"] == later.run["run_id"]
    assert (first.run["display_name"], first.config) == (later.run["display_name"], later.config)
    assert (first.summary["ref/psnr"], later.summary["ref/psnr"]) == (None, 31.5)
    assert max(e["_step"] for e in first.history) < min(e["_step"] for e in later.history)
    assert later.exit_code == 0


def test_new_scores_of_a_run_that_was_not_logged_start_no_log(tmp_path: Path) -> None:
    cell = begun(tmp_path)
    write_results(cell)
    rescored(cell.folder)
    assert not (cell.folder.path / "wandb").exists()


def test_a_reference_picture_that_is_missing_costs_its_difference_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reference = begun(tmp_path, "topology=1gpu")
    for prompt in (0, 1):
        write_picture(reference, prompt)
    reference.folder.update_record(status="done")
    cell = begun(tmp_path, "tracker=wandb_offline")
    with tracked(cell.effective, cell.folder, is_main=True) as tracker:
        reference.folder.image_path(0).unlink()
        for prompt in (0, 1):
            write_picture(cell, prompt)
            tracker.picture(cell.prompts[prompt])
        write_results(cell)
    names = only(cell).names
    assert {"picture/00", "marked/00", "picture/01", "difference/01"} <= names
    assert "difference/00" not in names
    assert any(str(reference.folder.image_path(0)) in message for message in said(caplog))


def test_no_tracker_and_other_ranks_log_nothing(tmp_path: Path) -> None:
    cell = begun(tmp_path)
    with tracked(cell.effective, cell.folder, is_main=True) as tracker:
        assert isinstance(tracker, NoTracker)
    other = begun(tmp_path, "tracker=wandb")
    with tracked(other.effective, other.folder, is_main=False) as tracker:
        assert isinstance(tracker, NoTracker)
    assert not runs_of(cell.folder)


def test_a_tracker_that_breaks_costs_its_log_and_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = begun(tmp_path, "tracker=wandb_offline")
    (cell.folder.path / "wandb").write_text("in the way")
    run(cell)
    assert len(said(caplog)) == 1
    assert "the tracker stopped" in said(caplog)[0]


def test_without_a_key_wandb_is_offline_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = begun(tmp_path, "tracker=wandb")
    run(cell)
    assert only(cell).exit_code == 0
    [message] = said(caplog)
    assert "no key is set" in message
    assert f"wandb sync {cell.folder.path}" in message


def test_a_server_that_never_answers_costs_the_time_limit_and_the_run_is_offline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = begun(tmp_path, "tracker=wandb", "tracker.init_timeout_s=2")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        start = time.monotonic()
        with tracked(cell.effective, cell.folder, is_main=True):
            waited = time.monotonic() - start
            write_results(cell)
    assert waited < 20  # wandb's own limit is 90
    assert len(said(caplog)) == 1
    assert [read(path).exit_code for path in runs_of(cell.folder) if path.name.startswith("offline")] == [0]


SCRIPT = """
import sys, time
from pathlib import Path
from small_run import begun, rows_of, write_picture
from otil_exp.tracking import tracked
cell = begun(Path(sys.argv[1]), "tracker=wandb_offline")
with tracked(cell.effective, cell.folder, is_main=True) as tracker:
    write_picture(cell, 0)
    tracker.steps(rows_of(0))
    tracker.picture(cell.prompts[0])
    time.sleep(1.5)
    print("logged", flush=True)
    time.sleep(60)
"""


def test_a_killed_run_keeps_all_but_the_last_second(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "logged\n"
    job.kill()
    job.wait(timeout=20)
    job.stdout.close()
    [logged] = [read(path) for path in tmp_path.glob("t/*/wandb/offline-run-*")]
    assert [entry["step/ms"] for entry in logged.history if "step/ms" in entry] == [0, 10, 20]
    assert "picture/00" in logged.names
    assert logged.exit_code is None
