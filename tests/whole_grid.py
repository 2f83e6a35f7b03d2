"""A finished grid on real ranks that several files of tests look at; whoever needs it first makes it (conftest.py)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from otil_exp.run_folder.folder import RunFolder

WORDS = (
    *("-m", "preset=reference,otil,balanced", "topology=2gpu_split,4gpu_split", "hydra.launcher.pack=4", "name=t"),
    *("device=cpu", "num_inference_steps=3", "warmup_steps=0", "prompts.limit=3", "metrics=shapes"),
    *("height=128", "width=128"),
)
"""What is typed: six cells, of which four are distinct."""


def make_grid(root: Path) -> Path:
    """Run the grid below `root`, unless that has been done; one worker at a time. Returns its folder."""
    made = root / "made"
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            command = [sys.executable, "-m", "otil_exp.app", *WORDS, f"output_dir={root}"]
            plain = {
                name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
            }
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=plain)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "6 cells, 4 distinct" in done.stdout
            made.touch()
    return root / "t"


def runs_of(grid: Path, method: str, world_size: int) -> list[RunFolder]:
    """Its run folders of a method on so many ranks."""
    found = [RunFolder(path) for path in sorted(grid.iterdir()) if path.is_dir()]
    return [
        folder
        for folder in found
        if (folder.record["method"], folder.record["topology"]["world_size"]) == (method, world_size)
    ]
