"""A real Slurm for the tests, and the app on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from otil_exp.run_folder.folder import RunFolder

ROOT = Path(__file__).parents[2]
ONE_NODE_SLURM = ROOT / "launchers" / "one_node_slurm"
OTIL = (sys.executable, "-m", "otil_exp.app", "-m", "hydra/launcher=slurm")
SIDE = ("height=128", "width=128")
SMALL = ("device=cpu", "num_inference_steps=3", "warmup_steps=0", "metrics=none", "prompts.limit=2", *SIDE)
QUICK = ("hydra.launcher.poll_s=1", "hydra.launcher.timeout_min=20")

PATIENCE_S = 240.0
"""Bound on every wait for jobs: many times what they take on two quiet cores."""


@dataclass(frozen=True)
class Cluster:
    """A running Slurm, and where its users work."""

    conf: str
    """SLURM_CONF."""

    def environment(self, faults: str = "", path: Path | None = None) -> dict[str, str]:
        """What a user's shell has on its login node. path: a checkout's src, which is imported instead of ours."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "WANDB_"))}
        planted = str(Path(__file__).parent / "faults") if faults else ""
        paths = filter(None, [planted, str(path or ""), os.environ.get("PYTHONPATH", "")])
        return kept | {
            "SLURM_CONF": self.conf,
            "OTIL_EXP_FAULTS": faults,
            "PYTHONPATH": os.pathsep.join(paths),
            "COLUMNS": "1000",
            "OMP_WAIT_POLICY": "passive",
        }

    def start(self, *arguments: str, faults: str = "", path: Path | None = None) -> subprocess.Popen[str]:
        """Type a command and let it run; its two streams as one text."""
        return subprocess.Popen(
            [*OTIL, *SMALL, *QUICK, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(faults, path),
        )

    def run(self, *arguments: str, faults: str = "", path: Path | None = None) -> tuple[int, str]:
        """Type a command and wait for its end: exit code and words."""
        return ended(self.start(*arguments, faults=faults, path=path))

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
        return done.stdout

    def queue(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--array", "--format=%i %T %j").splitlines()


def ended(command: subprocess.Popen[str], patience_s: float = PATIENCE_S) -> tuple[int, str]:
    """Wait for a command's end: exit code and words."""
    try:
        said, _ = command.communicate(timeout=patience_s)
    finally:
        command.kill()
    return command.returncode, said


def interrupted(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Ctrl-C."""
    command.send_signal(signal.SIGINT)
    return ended(command)


def until(happened: Callable[[], object], what: str) -> None:
    """Wait, in bounds, until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.2)


def runs_of(root: Path, name: str = "t") -> list[RunFolder]:
    """Run folders of a grid that were begun."""
    return [RunFolder(path.parent) for path in sorted((root / name).glob("*/record.json"))]


def runs(root: Path, name: str = "t") -> dict[str, RunFolder]:
    """Run folders of a grid by method, ranks and split."""
    found = {}
    for folder in runs_of(root, name):
        topology = folder.record["topology"]
        split = "split" if topology["split_batch"] else "nosplit"
        found[f"{folder.record['method']} {topology['world_size']} {split}"] = folder
    return found


def jobs_of(root: Path, name: str = "t") -> dict[str, str]:
    """Numbers of the jobs that a grid's ledger has, by name of the run folder."""
    entries = json.loads((root / name / ".submitit" / "jobs.json").read_text(encoding="utf-8"))
    return {cell: str(entry["job"]) for cell, entry in entries.items()}


def job_of(root: Path, folder: RunFolder, name: str = "t") -> str:
    """Number of the job that a grid's ledger has for a run folder."""
    return jobs_of(root, name)[folder.path.name]


def pictures(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.images.iterdir())}
