"""Everything that fp8 products and kept graphs have to show, on one GPU.

    python -m benchmarks.fp8_and_start FOLDER [PART ...]      # default: speed start

speed: steady steps with and without fp8, beside upstream's in the same run: a rank of four and the whole UNet.
start: from the start of a process to its first step. more: larger pictures, GroupNorm over all slices. pictures:
shapes, two ranks on the GPU, with and without fp8.
A call ends within BUDGET_S: a part that has no time left is named, and is the next call's.
What was found beside what was wanted is printed and written (FOLDER/found.md) after each part, figures as they are
measured (FOLDER/speed/results.json, FOLDER/start/start.json), and what failed says why (FOLDER/failures.txt).
Without a GPU the model is shapes at 256 x 256: a test of this script, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.fp8_and_start.findings import Finding, report, speed_findings, start_findings
from benchmarks.one_gpu_speed.cases import ON_CPU, UPSTREAM, Case, upstream_rank, whole

BUDGET_S = float(os.environ.get("BUDGET_S", 560))
"""Seconds of one call."""

LEAST_S = {"speed": 200.0, "start": 100.0, "more": 240.0, "pictures": 120.0}
"""Seconds below which a part is not begun."""

READY_S = 200.0
"""Bound on getting the cases of a part ready."""

SIZE = 256 if ON_CPU else 1024
METHODS = "reference,naive_patch,guide,balanced,otil,distrifusion"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="part", default=["speed", "start"])
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    deadline, found = time.monotonic() + BUDGET_S, list[Finding]()
    for part in options.parts:
        left = deadline - time.monotonic()
        if left < min(LEAST_S[part], BUDGET_S):
            found.append((part, "", "no time was left: call it alone"))
        else:
            found += _performed(part, folder, left)
        report(found, folder)
    return 0


def _performed(part: str, folder: Path, left: float) -> list[Finding]:
    """What a part finds; one that fails costs only itself."""
    began = time.monotonic()
    try:
        found = PARTS[part](folder, left)
    except Exception as error:
        traceback.print_exc()
        found = [(part, "", f"failed: {type(error).__name__}: {error}")]
    print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
    return found


def speed_cases() -> list[Case]:
    """By value, and timed in that order: upstream's one GPU and rank of 4, split; ours, without fp8 and with it; the
    whole UNet both ways."""
    upstream = [whole(UPSTREAM, SIZE), upstream_rank(SIZE)]
    return [*upstream, *_both(Case("no_sync", "compiled", SIZE)), *_both(whole("compiled", SIZE))]


def more_cases() -> list[Case]:
    """Large pictures, GroupNorm over all slices, and what it takes to count what fp8 cuts."""
    exact = Case("no_sync", "compiled", SIZE, gn_sync="true")
    if ON_CPU:
        return _both(exact)
    large = [case for size in (2048, 3840) for case in _both(Case("no_sync", "compiled", size))]
    one_graph = Case("no_sync", "compiled", SIZE, variant="one-graph")
    return [*large, *_both(exact), replace(exact, variant="fp8-uncounted"), one_graph]


def _both(case: Case) -> list[Case]:
    """Without fp8, and with."""
    return [case, replace(case, variant="fp8")]


def speed(folder: Path, left: float) -> list[Finding]:
    """Milliseconds of a steady step."""
    return _timed(speed_cases(), folder / "speed", left)


def more(folder: Path, left: float) -> list[Finding]:
    """The same of other ranks and sizes."""
    return _timed(more_cases(), folder / "more", left)


def _timed(cases: list[Case], folder: Path, left: float) -> list[Finding]:
    variables = {"COMPILE_TIMEOUT_S": f"{min(READY_S, left - 8 * len(cases)):.0f}"}
    _run(["benchmarks.one_gpu_speed", str(folder), *(case.name for case in cases)], left, variables)
    return speed_findings(cases, folder)


def start(folder: Path, left: float) -> list[Finding]:
    """Seconds from the start of a process to its first step."""
    (folder / "start").mkdir(exist_ok=True)
    _run(["benchmarks.fp8_and_start.start", str(folder / "start"), f"{left - 5:.0f}"], left, {})
    return start_findings(folder / "start")


def pictures(folder: Path, left: float) -> list[Finding]:
    """PSNR of pictures with fp8 against those without."""
    place = ["device=cpu"] if ON_CPU else ["device=shared_gpu", "model.dtype=float16"]
    grid = [f"preset={METHODS}", "engine.products=model_dtype,fp8", "topology=2gpu_nosplit", "prompts.limit=4"]
    where = [f"output_dir={folder}", "name=pictures", "hydra.launcher.pack=6"]
    _run(["otil_exp.app", "-m", *grid, *place, *where], left, {})
    _run(["benchmarks.fp8_and_start.pictures", str(folder / "pictures")], 60, {})
    return [("pictures", "at least 40 dB, the order of methods as without", "the table above")]


PARTS: dict[str, Callable[[Path, float], list[Finding]]] = {
    "speed": speed,
    "start": start,
    "more": more,
    "pictures": pictures,
}


def _run(module: list[str], bound: float, variables: dict[str, str]) -> None:
    """Run a module, for at most so many seconds; what it has written by then counts."""
    try:
        subprocess.run([sys.executable, "-m", *module], env=os.environ | variables, timeout=bound, check=False)
    except subprocess.TimeoutExpired:
        print(f"{module[0]}: ended after {bound:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
