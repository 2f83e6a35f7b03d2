"""What packing saves: a grid of small cells with and without hydra.launcher.pack, on this machine.

python -m benchmarks.pack --repeats 3 --out /tmp/pack
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

METHODS = "full_sync,distrifusion,balanced,otil,guide,naive_patch"
CELLS = METHODS.count(",") + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--topology", default="2gpu_nosplit")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    options = parser.parse_args()
    taken: dict[int, list[tuple[float, float]]] = {1: [], CELLS: []}
    for repeat in range(options.repeats):
        for pack, times in taken.items():  # in turns, so that a load from elsewhere falls on both
            times.append(grid(options.out / f"{repeat}-{pack}", options.topology, pack))
            print(f"pack={pack}: {times[-1][0]:.1f} s, {times[-1][1]:.1f} CPU s", flush=True)
    print(
        f"\n| pack | wall s | CPU s | CPU s a cell |\n|---|---|---|---|  ({CELLS} cells, {options.topology}, medians)"
    )
    for pack, times in taken.items():
        wall, cpu = (median(column) for column in zip(*times, strict=True))
        print(f"| {pack} | {wall:.1f} | {cpu:.1f} | {cpu / CELLS:.1f} |")


def grid(out: Path, topology: str, pack: int) -> tuple[float, float]:
    """Run the grid; wall seconds, and CPU seconds of all its processes."""
    command = [
        *(sys.executable, "-m", "otil_exp.app", "-m", f"preset={METHODS}", f"topology={topology}", "device=cpu"),
        *("num_inference_steps=3", "warmup_steps=0", "prompts.limit=1", "metrics=none", "name=pack"),
        *(f"output_dir={out}", f"hydra.launcher.pack={pack}"),
    ]
    before, start = cpu_of_children(), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - start, cpu_of_children() - before


def cpu_of_children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


if __name__ == "__main__":
    main()
