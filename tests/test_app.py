"""The commands as a user types them, on real ranks."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from otil_exp.run_folder.folder import RunFolder
from otil_exp.shapes import PIPELINE_FOLDER
from preloaded.stand_in import process_behind
from test_compose_errors import refused, refused_and_shown
from whole_grid import runs_of

STEPS = ("device=cpu", "num_inference_steps=3", "warmup_steps=0", "name=t")
SMALL = (*STEPS, "height=128", "width=128")
OTIL = (sys.executable, "-m", "otil_exp.app")


def environment() -> dict[str, str]:
    """What a user's shell has: none of a rank's variables."""
    return {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}


def otil_exp(
    *arguments: str, command: tuple[str, ...] = OTIL, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run the app to its end; the two streams as text."""
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=timeout, env=environment() | {"COLUMNS": "200"}
    )


def folders(root: Path) -> dict[str, RunFolder]:
    """Run folders of the grid `t` by method."""
    found = [RunFolder(path) for path in (root / "t").iterdir() if path.is_dir()]
    return {folder.record["method"]: folder for folder in found}


def pixels(folder: RunFolder) -> dict[str, np.ndarray]:
    return {path.name: np.asarray(Image.open(path)) for path in sorted(folder.images.iterdir())}


@pytest.mark.ranks
def test_a_grid_leaves_complete_run_folders_and_a_rerun_skips_them(tmp_path: Path) -> None:
    grid = (
        "-m",
        "preset=balanced,reference",
        "topology=2gpu_nosplit",
        "prompts.limit=2",
        f"output_dir={tmp_path}",
        *SMALL,
    )
    done = otil_exp(*grid)
    assert done.returncode == 0, done.stderr
    assert "2 cells, 2 distinct\ncell 1 of 2\n" in done.stdout
    assert "cell 2 of 2, about " in done.stdout
    assert "starting 2 ranks\nloading weights\npreparing\n2 pictures\nscoring\n" in done.stdout
    runs = folders(tmp_path)
    assert set(runs) == {"balanced", "reference"}
    for folder in runs.values():
        assert sorted(path.name for path in folder.images.iterdir()) == ["00.png", "01.png"]
        assert folder.record["status"] == "done"
        assert folder.record["signature"] == folder.path.name
        assert folder.record["versions"]["torch"]
        assert set(folder.record["phases"]) == {"starting ranks", "loading weights", "preparing", "pictures", "scoring"}
    config = yaml.safe_load((runs["balanced"].path / "config.yaml").read_text())
    assert config["preset"]["name"] == "balanced"
    assert config["height"] == 128
    with (runs["balanced"].path / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3  # ranks x prompts x steps
    assert {row["kind"] for row in rows} == {"warmup", "steady"}
    metrics = json.loads((runs["balanced"].path / "metrics.json").read_text())
    assert metrics["ref/psnr"]["n"] == 2
    assert metrics["ref/psnr"]["unit"] == "dB"
    assert (runs["balanced"].logs / "rank1.log").exists()

    said = ("multirun.yaml", ".lock")  # by every command: what was typed, and who has the lock
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file() and path.name not in said}
    again = otil_exp(*grid)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done already, skipped") == 2
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_a_grid_with_a_mistake_starts_nothing(tmp_path: Path) -> None:
    done = otil_exp("-m", "preset=otil,balanced", "k.budget=8,500", "height=256,720", f"output_dir={tmp_path}", *STEPS)
    assert done.returncode == 1
    assert "nothing was started" in done.stderr
    assert "use height=704 or height=768" in done.stderr
    assert "k.budget=500" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in (tmp_path / "t").glob("*") if path.is_dir()]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("height=200",), "use height=192 or height=256"),
        (("preset=nonsense",), "otil"),  # Hydra lists the options
        (("warmup=3",), "warmup"),
        (("k=k7",), "k16"),
        (("device=cuda",), "device=cpu"),
        (("model=sdxl",), "model.dtype=float32"),
        (("model=sdxl", "model.dtype=float32"), "otil-exp-fetch"),
        (("prompts=file",), "prompts.path=FILE"),
    ],
)
def test_a_mistake_is_one_sentence_without_a_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    assert sentence in refused(monkeypatch, capsys, f"output_dir={tmp_path}", *STEPS, *arguments)
    assert not list(tmp_path.glob("*/*"))


def test_a_mistake_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    """As a process; what it says is tried above."""
    done = otil_exp(f"output_dir={tmp_path}", *STEPS, "height=200")
    assert done.returncode == 1
    [sentence] = done.stderr.splitlines()
    assert "use height=192 or height=256" in sentence
    assert done.stdout == ""
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize("command", [(), ("-m",), ("-m", "hydra/launcher=slurm")])
@pytest.mark.parametrize("folder", ["/proc/nope", "/etc/hostname"])
def test_a_folder_that_cannot_be_written_to_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], folder: str
) -> None:
    words = (*command, "preset=reference", *SMALL, f"output_dir={folder}")
    said, shown = refused_and_shown(monkeypatch, capsys, *words)
    [sentence] = said.splitlines()
    assert sentence.startswith(f"output_dir: {folder}/t cannot be written to")
    assert "use output_dir=FOLDER" in sentence
    assert shown == ""


def test_a_quoted_tilde_is_the_users_home(tmp_path: Path) -> None:
    command = [*OTIL, "-m", "preset=reference", *SMALL, "prompts.limit=1", "metrics=none", "output_dir='~/out'"]
    home = environment() | {"HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=home, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"home"}
    assert (tmp_path / "home" / "out" / "t" / "multirun.yaml").exists()
    assert folders(tmp_path / "home" / "out")["reference"].finished


def test_nor_is_a_folder_of_slurms_files_that_cannot_be_made_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / ".submitit").touch()
    words = ("-m", "hydra/launcher=slurm", "preset=reference", *SMALL, f"output_dir={tmp_path}")
    [sentence] = refused(monkeypatch, capsys, *words).splitlines()
    assert f"{tmp_path}/t/.submitit cannot be written to" in sentence


@pytest.mark.ranks
def test_a_black_picture_fails_the_run_and_is_named(tmp_path: Path) -> None:
    """A model with a weight that is no number, as half-finished training leaves them."""
    model = shutil.copytree(PIPELINE_FOLDER, tmp_path / "model")
    weights = model / "unet" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(weights)
    tensors["conv_out.bias"][0] = float("nan")
    save_file(tensors, weights, metadata={"format": "pt"})
    words = ("preset=reference", "prompts.limit=1", f"output_dir={tmp_path}", f"model.source={model}")
    done = otil_exp(*words, *SMALL)
    assert done.returncode == 1
    assert "not finite" in done.stderr
    [folder] = folders(tmp_path).values()
    assert folder.record["status"] == "failed"
    assert folder.record["failed_rank"] == 0
    assert "prompt 00" in folder.record["error"]
    assert not folder.images.exists()


@pytest.mark.ranks
def test_under_torchrun_the_ranks_are_not_started_twice(tmp_path: Path) -> None:
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        "-m",
        "otil_exp.app",
    )
    common = ("preset=full_sync", "prompts.limit=1", f"output_dir={tmp_path}", *SMALL)
    done = otil_exp(*common, "topology=2gpu_nosplit", command=torchrun)
    assert done.returncode == 0, done.stderr
    assert folders(tmp_path)["full_sync"].record["topology"]["name"] == "2gpu_nosplit"
    refused = otil_exp(*common, "topology=4gpu_split", command=torchrun)
    assert refused.returncode != 0
    assert refused.stderr.count("--nproc_per_node=4") == 1


PROMPTS = 6
"""Of a run that is killed after its second picture."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """The runs that are killed below, whole, by method; ranks start once for them."""
    root = tmp_path_factory.mktemp("whole")
    words = ("-m", "preset=otil,fold", "topology=2gpu_nosplit", f"prompts.limit={PROMPTS}", "hydra.launcher.pack=2")
    assert otil_exp(*words, f"output_dir={root}", *SMALL).returncode == 0
    return folders(root)


@pytest.mark.ranks
@pytest.mark.parametrize("preset", ["otil", "fold"])
def test_a_killed_rank_ends_the_job_and_the_rerun_makes_only_what_is_missing(
    tmp_path: Path, uninterrupted: dict[str, RunFolder], preset: str
) -> None:
    """SIGKILL of rank 1 in the middle of the prompts: named within a minute; the rest equals an uninterrupted run."""
    cell = (f"preset={preset}", "topology=2gpu_nosplit", f"prompts.limit={PROMPTS}", *SMALL)
    job = subprocess.Popen(
        [*OTIL, f"output_dir={tmp_path}", *cell],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        victim = wait_for_pictures(tmp_path, job, count=2)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        _, errors = job.communicate(timeout=60)
    finally:
        job.kill()
    assert time.monotonic() - killed < 60
    assert job.returncode == 1
    assert "rank 1 was killed by SIGKILL" in errors
    folder = folders(tmp_path)[preset]
    assert (folder.record["status"], folder.record["failed_rank"]) == ("failed", 1)
    before = {path.name: path.stat().st_mtime_ns for path in folder.images.iterdir()}
    assert 2 <= len(before) < PROMPTS

    assert otil_exp(f"output_dir={tmp_path}", *cell).returncode == 0
    assert folder.record["status"] == "done"
    assert len(folder.record["resumed"]) == 1
    assert {name: (folder.images / name).stat().st_mtime_ns for name in before} == before
    assert len(folder.read_steps()) == PROMPTS * 2 * 3

    whole, resumed = pixels(uninterrupted[preset]), pixels(folder)
    assert list(resumed) == list(whole) == [f"{i:02d}.png" for i in range(PROMPTS)]
    assert all(np.array_equal(resumed[name], whole[name]) for name in whole)


def wait_for_pictures(root: Path, job: subprocess.Popen[str], count: int) -> int:
    """Wait until the run has some pictures; the pid of its rank 1."""
    deadline = time.monotonic() + 180
    while len(list(root.glob("t/*/images/*.png"))) < count:
        assert job.poll() is None, job.stderr.read() if job.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return next(pid for pid in children(job.pid) if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes())


def children(pid: int) -> list[int]:
    """All descendants of a process, and of those that processes stand in for."""
    own = [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    own += process_behind(pid)
    return own + [below for child in own for below in children(child)]


@pytest.mark.ranks
def test_two_nodes_of_two_ranks_equal_one_node_of_four(tmp_path: Path, finished_grid: Path) -> None:
    """Two torchrun agents on this host stand for two nodes; the local rank differs from the rank on the second."""
    cell = ("preset=balanced", "topology=4gpu_split", "prompts.limit=1", *SMALL)
    rendezvous = (
        "--nnodes=2",
        "--nproc_per_node=2",
        "--rdzv_backend=c10d",
        "--rdzv_id=t",
        f"--rdzv_endpoint=127.0.0.1:{free_port()}",
    )
    torchrun = (sys.executable, "-m", "torch.distributed.run", *rendezvous, "-m", "otil_exp.app")
    node = [*torchrun, f"output_dir={tmp_path / 'nodes'}", *cell]
    agents = [
        subprocess.Popen(node, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
        for _ in range(2)
    ]
    try:
        said = [agent.communicate(timeout=240)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], said
    nodes, [one] = folders(tmp_path / "nodes")["balanced"], runs_of(finished_grid, "balanced", world_size=4)
    assert np.array_equal(pixels(nodes)["00.png"], pixels(one)["00.png"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.ranks
def test_ctrl_c_is_no_failure_and_scores_follow_a_reference_that_came_later(tmp_path: Path) -> None:
    """Interrupted, run to its end, then compared with a reference that was made last."""
    cell = (f"output_dir={tmp_path}", *SMALL, "metrics=pairwise")
    otil = (*cell, "preset=otil", "topology=2gpu_nosplit", "prompts.limit=3")
    job = subprocess.Popen([*OTIL, *otil], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        wait_for_pictures(tmp_path, job, count=1)
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 1
    assert errors.strip().endswith("the same command goes on with what is missing")
    assert "Traceback" not in errors
    folder = folders(tmp_path)["otil"]
    assert folder.record["status"] == "preempted"
    assert otil_exp(*otil).returncode == 0
    assert folder.metrics["ref/psnr"]["value"] is None
    assert otil_exp(*cell, "preset=reference", "prompts.limit=3").returncode == 0
    again = otil_exp(*otil)
    assert "done already, skipped" in again.stdout
    assert folder.metrics["ref/psnr"]["n"] == 3
