"""An installed wheel is whole: the config tree, the weights and the launcher plugin travel with it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the unpacked wheel and nothing else of ours."""
    dist, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)], cwd=ROOT, check=True)
    [wheel] = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True)
    return site


def run(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import otil_exp; assert {str(site)!r} in otil_exp.__file__"
    start = [sys.executable, "-c", f"{code}; from otil_exp.app import main; main()"]
    return subprocess.run([*start, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


def test_the_wheel_composes_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "preset=otil", "topology=2gpu_nosplit", "--cfg", "job", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "name: otil" in done.stdout
    assert (installed / "otil_exp" / "conf" / "preset" / "otil.yaml").exists()


@pytest.mark.ranks
@pytest.mark.usefixtures("fresh_processes")
def test_the_wheel_makes_a_picture(installed: Path, tmp_path: Path) -> None:
    small = ("device=cpu", "num_inference_steps=2", "warmup_steps=0", "prompts.limit=1", "name=w", "height=64")
    done = run(installed, "-m", "preset=reference", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("outputs/w/*/images/00.png"))) == 1


def test_every_command_of_the_wheel_is_a_function(installed: Path) -> None:
    [ours] = distributions(path=[str(installed)])
    commands = {one.name: one.load() for one in ours.entry_points if one.group == "console_scripts"}
    assert "otil-exp" in commands
    assert all(map(callable, commands.values()))
