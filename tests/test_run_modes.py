"""mode=benchmark, and the Python way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from test_app import SMALL, folders, otil_exp


@pytest.mark.ranks
def test_benchmark_keeps_its_samples_and_makes_no_picture(tmp_path: Path) -> None:
    done = otil_exp("preset=balanced", "topology=2gpu_nosplit", "mode=benchmark", f"output_dir={tmp_path}", *SMALL)
    assert done.returncode == 0, done.stderr
    folder = folders(tmp_path)["balanced"]
    latency = folder.metrics["latency/image_s"]
    assert (latency["n"], latency["dropped"], len(latency["samples"])) == (3, 2, 5)
    assert min(latency["samples"]) <= latency["value"] <= max(latency["samples"])
    assert {row.repeat for row in folder.read_steps()} == set(range(5))
    assert not folder.images.exists()
