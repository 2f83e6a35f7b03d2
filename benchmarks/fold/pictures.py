"""Peak memory of whole pictures: what loading, the text encoders and the messages add to a rank's part."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otil_exp.run_folder.folder import RunFolder

SHORT = (
    *("mode=benchmark", "benchmark.warmup_images=0", "benchmark.repeats=1", "benchmark.drop_extremes=0"),
    *("num_inference_steps=6", "warmup_steps=2", "refresh=never", "engine=eager", "metrics=none"),
)
"""A picture that has every kind of step; its VAE is not run."""

CELLS = (("reference", "1gpu"), ("fold", "4gpu_split"), ("asyncdiff", "4gpu_split"))


def peaks(folder: Path, model: str, device: str) -> Iterator[dict[str, Any]]:
    """Of each method, the peak of every rank, MiB; all ranks share the GPU."""
    kind = "cpu" if device == "cpu" else "shared_gpu"
    for preset, topology in CELLS:
        where = (f"output_dir={folder}", f"name=pictures_{preset}", f"model={model}", f"device={kind}")
        command = [sys.executable, "-m", "otil_exp.app", f"preset={preset}", f"topology={topology}", *SHORT, *where]
        found = {"part": f"picture of {preset}", "topology": topology, "model": model}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        runs = [RunFolder(path.parent) for path in (folder / f"pictures_{preset}").glob("*/record.json")]
        if done.returncode or len(runs) != 1:
            yield found | {"failed": done.stdout[-3000:]}
        else:
            yield found | {"peak_mib_by_rank": runs[0].record["peak_memory_mib_by_rank"]}
