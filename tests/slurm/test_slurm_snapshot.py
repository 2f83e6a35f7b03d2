"""A snapshot is the code as it was, whole, once for the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import otil_exp
from otil_exp.slurm.snapshot import import_from, take


def test_a_snapshot_is_imported_instead_of_the_checkout_and_knows_its_commit(tmp_path: Path) -> None:
    code = take(tmp_path / "code")
    assert take(tmp_path / "code") == code
    assert [path.name for path in (tmp_path / "code").iterdir()] == [code.name]
    source = Path(otil_exp.__file__).parent
    files = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    copied = {path.relative_to(code / "otil_exp") for path in (code / "otil_exp").rglob("*") if path.is_file()}
    assert copied - files == {Path("git_commit.txt")}
    assert files <= copied
    (code / "otil_exp" / "git_commit.txt").write_text("abc-dirty")
    ask = "import otil_exp, hydra_plugins.otil_exp_launcher as p, otil_exp.run.provenance as v; " + (
        "print(otil_exp.__file__, p.__file__, v.commit())"
    )
    script = "\n".join([*import_from(code), f'{sys.executable} -c "{ask}"'])
    said = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=source.parent,  # python would import from where it is started
        env={**os.environ, "PYTHONPATH": str(source.parent)},
    ).stdout.split()
    assert said == [
        str(code / "otil_exp" / "__init__.py"),
        str(code / "hydra_plugins" / "otil_exp_launcher" / "__init__.py"),
        "abc-dirty",
    ]
