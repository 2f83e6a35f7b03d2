"""A rank's words follow it from one run folder to the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, os, sys
from pathlib import Path
from otil_exp.rank_log import continue_log, log_to, open_log
root = Path(sys.argv[1])
log = open_log(root / "a", 3)
log.redirect_output()
log_to(sys.stderr, 3)
for folder in ("a", "b"):
    continue_log(root / folder, f"cell {folder}")
    print(f"printed in {folder}")
    logging.warning("logged in %s", folder)
    os.system(f"echo by a child in {folder}")
"""


def test_prints_logs_and_children_change_files_together(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    for folder in ("a", "b"):
        words = (tmp_path / folder / "rank3.log").read_text()
        for said in ("printed", "logged", "by a child"):
            assert words.count(f"{said} in {folder}") == 1
        assert words.splitlines()[0].endswith(f"[rank 3] begins cell {folder}")
        assert f"in {'ab'.replace(folder, '')}" not in words
