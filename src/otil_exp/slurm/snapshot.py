"""hydra.launcher.snapshot=true: jobs import the code as it was when they were submitted.

submitit's RsyncSnapshot copies what git knows of a checkout, by rsync: a module that is not added yet would be
missing, and an installed wheel or a machine without rsync could have none. So the packages that run here are copied.
"""

from __future__ import annotations

import hashlib
import importlib
import shlex
import shutil
import tempfile
from pathlib import Path

from otil_exp.run.provenance import COMMIT_FILE, commit

_PACKAGES = ("otil_exp", "hydra_plugins.otil_exp_launcher")
"""What jobs import of ours."""

_SKIPPED = shutil.ignore_patterns("__pycache__")


def take(folder: Path) -> Path:
    """Copy our code to a folder of its own below `folder`, unless the same code is there; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _digest()
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as name:
        beside = Path(name) / "code"
        for package in _PACKAGES:
            shutil.copytree(_folder_of(package), beside / package.replace(".", "/"), ignore=_SKIPPED)
        (beside / "otil_exp" / COMMIT_FILE).write_text(commit() or "", encoding="utf-8")
        try:
            beside.rename(target)
        except OSError:  # another command was as quick
            if not target.exists():
                raise
    return target


def import_from(folder: Path) -> list[str]:
    """Lines of a batch script by which its Python imports a snapshot, not the checkout or the folder it is run in."""
    return [f"export PYTHONPATH={shlex.quote(str(folder))}${{PYTHONPATH:+:$PYTHONPATH}}", "export PYTHONSAFEPATH=1"]


def _folder_of(package: str) -> Path:
    return Path(str(importlib.import_module(package).__file__)).parent


def _digest() -> str:
    """Of all that is copied: names and content."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        root = _folder_of(package)
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{package}/{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
