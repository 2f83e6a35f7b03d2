"""hydra/sweeper=grid: every cell of a grid is composed once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COUNT = """
import sys
from hydra._internal.config_loader_impl import ConfigLoaderImpl as Loader
compose, composed = Loader.load_sweep_config, []
def counted(self, master_config, sweep_overrides):
    composed.append(tuple(sweep_overrides))
    return compose(self, master_config, sweep_overrides)
Loader.load_sweep_config = counted
from otil_exp.app import main
sys.argv = ["otil-exp", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end)
print(len(composed), "composed,", len(set(composed)), "different")
"""


def test_every_cell_is_composed_once_and_a_mistake_is_still_named(tmp_path: Path) -> None:
    """Three heights, each of which is refused before anything starts."""
    grid = ("-m", "preset=otil", "topology=2gpu_nosplit", "device=cpu", "height=200,201,202", f"output_dir={tmp_path}")
    run = subprocess.run([sys.executable, "-c", COUNT, *grid], capture_output=True, text=True, timeout=120, check=True)
    assert "nothing was started" in run.stdout
    assert run.stdout.splitlines()[-1] == "3 composed, 3 different"
