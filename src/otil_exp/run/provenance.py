"""What a result depends on besides its config: machine, versions, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import otil_exp
from otil_exp.topology import ALL_VISIBLE

PACKAGES = ("torch", "diffusers", "transformers", "huggingface_hub", "distrifuser", "hydra-core")

COMMIT_FILE = "git_commit.txt"
"""Beside the code where it was copied out of its checkout: the commit it had there."""


def now() -> str:
    """Current time, UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def provenance() -> dict[str, Any]:
    """Machine, GPUs and their links, package versions, git commit of the code; plain values for record.json."""
    gpus = _gpus()
    return {
        "host": platform.node(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count()},
        "gpus": gpus,
        "gpu_links": _command(["nvidia-smi", "topo", "-m"]) if len(gpus) > 1 else None,
        "driver": _command(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "versions": {
            "otil_exp": otil_exp.__version__,
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            **_versions(),
        },
        "git_commit": commit(),
    }


def commit() -> str | None:
    """Commit of this code, with -dirty for changed files; None where it was installed from a wheel."""
    if (noted := Path(otil_exp.__file__).with_name(COMMIT_FILE)).exists():
        return noted.read_text(encoding="utf-8").strip() or None
    git = ["git", "-C", str(Path(__file__).parent)]
    if _command([*git, "ls-files", Path(__file__).name]) is None:
        return None
    return _command([*git, "describe", "--always", "--dirty", "--abbrev=40"])


def _gpus() -> list[str]:
    """Names of the GPUs of this process's job here: of all, where each rank sees its own only."""
    if (ids := os.environ.get(ALL_VISIBLE)) is not None:
        said = _command(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", f"--id={ids}"])
        if said is not None:
            return said.splitlines()
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _command(command: list[str]) -> str | None:
    """First output of a helper program, or None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
