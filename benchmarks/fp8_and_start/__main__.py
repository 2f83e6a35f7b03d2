"""Everything that fp8 products and kept graphs have to show, on one GPU.

    python -m benchmarks.fp8_and_start FOLDER [PART ...]      # parts: speed, start, pictures; default all

speed: steady steps with and without fp8, each in the same run as upstream's one GPU. start: from the start of a
process to its first step. pictures: shapes, two ranks on the GPU, with and without fp8. A call ends within BUDGET_S:
a part that has no time left is named, and is the next call's (results stay in FOLDER). Prints what was wanted beside
what was found.
Without a GPU the model is shapes at 256 x 256: a test of this script, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.one_gpu_speed.cases import CASES, ON_CPU, UPSTREAM, Case, whole

BUDGET_S = float(os.environ.get("BUDGET_S", 570))
"""Seconds of one call."""

LEAST_S = {"speed": 240.0, "start": 240.0, "pictures": 120.0}
"""Seconds below which a part is not begun."""

SIZE = 256 if ON_CPU else 1024
METHODS = "reference,naive_patch,guide,balanced,otil,distrifusion"

Finding = tuple[str, str, str]
"""What, what is wanted, what was found."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="part", default=list(PARTS))
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    deadline, findings = time.monotonic() + BUDGET_S, list[Finding]()
    for part in options.parts:
        left = deadline - time.monotonic()
        if left < min(LEAST_S[part], BUDGET_S):
            findings.append((part, "", "no time was left: call it alone"))
            continue
        findings += PARTS[part](options.folder.absolute(), left)
    print("| what | wanted | found |", "|---|---|---|", sep="\n")
    print(*(f"| {what} | {wanted} | {found} |" for what, wanted, found in findings), sep="\n")
    return 0


def speed_cases() -> list[Case]:
    """The whole UNet and a rank of 4, split, with fp8 and without, at all sizes; and upstream's one GPU."""
    sizes = (256,) if ON_CPU else (1024, 2048, 3840)
    cases = [whole("compiled", SIZE), whole("compiled", SIZE, variant="fp8"), whole(UPSTREAM, SIZE)]
    for size in sizes:
        cases += [Case("no_sync", "compiled", size), Case("no_sync", "compiled", size, variant="fp8")]
    cases += [Case("no_sync", "compiled", SIZE, gn_sync="true", variant=one) for one in ("", "fp8", "fp8-uncounted")]
    return [case for case in cases if case in CASES]


def speed(folder: Path, left: float) -> list[Finding]:
    """Milliseconds of a steady step."""
    timed_s = 10.0 * len(speed_cases())
    variables = {"COMPILE_TIMEOUT_S": f"{max(60.0, left - timed_s):.0f}"}
    command = ["benchmarks.one_gpu_speed", str(folder / "speed"), *(case.name for case in speed_cases())]
    _run(command, left, variables)
    return speed_findings(_read(folder / "speed" / "results.json", []))


def speed_findings(results: list[dict[str, Any]]) -> list[Finding]:
    by_case = {result["case"]: result for result in results}

    def ms(case: Case) -> float | None:
        return by_case[case.name]["step_ms"] if case.name in by_case else None

    upstream = ms(whole(UPSTREAM, SIZE))
    found: list[Finding] = []
    for case in speed_cases():
        own, plain = ms(case), ms(Case(**{**vars(case), "variant": ""}))
        if own is None:
            found.append((case.name, "", "not measured"))
            continue
        words = [f"{own:.2f} ms"]
        if case.variant and plain:
            words.append(f"{plain / own:.2f}x of without")
        if upstream and case.size == SIZE and case.world_size > 1:
            words.append(f"{upstream / own:.2f}x of upstream's one GPU")
        result = by_case[case.name]
        words += [f"graphs {result['graphs']}"] * (result["graphs"] > 1)
        words += [f"host waits {result['host_waits']}"] * bool(result.get("host_waits"))
        aim = "at most 10.2 ms, 4.0x" if case.size == SIZE and case.world_size > 1 and case.variant == "fp8" else ""
        slower = "no slower than without" if case.variant == "fp8" and case.size > SIZE else ""
        found.append((case.name, aim or slower, ", ".join(words)))
    return found


def start(folder: Path, left: float) -> list[Finding]:
    """Seconds from the start of a process to its first step."""
    variables = {"COMPILE_TIMEOUT_S": f"{left / 2:.0f}"}
    (folder / "start").mkdir(exist_ok=True)
    _run(["benchmarks.fp8_and_start.start", str(folder / "start")], left, variables)
    wanted = {"cold": "at most 120 s", "warm": "at most 15 s", "moved": "nothing compiled"}
    figures = _read(folder / "start" / "start.json", {})
    return [
        (f"start, {name}", aim, json.dumps(figures.get(name, {"failed": "not measured"})))
        for name, aim in wanted.items()
    ]


def pictures(folder: Path, left: float) -> list[Finding]:
    """PSNR of pictures with fp8 against those without."""
    place = ["device=cpu"] if ON_CPU else ["device=shared_gpu", "model.dtype=float16"]
    grid = [f"preset={METHODS}", "engine.products=model_dtype,fp8", "topology=2gpu_nosplit", "prompts.limit=4"]
    where = [f"output_dir={folder}", "name=pictures", "hydra.launcher.pack=6"]
    _run(["otil_exp.app", "-m", *grid, *place, *where], left, {})
    _run(["benchmarks.fp8_and_start.pictures", str(folder / "pictures")], 60, {})
    return [("pictures", "at least 40 dB, the order of methods as without", "the table above")]


PARTS: dict[str, Callable[[Path, float], list[Finding]]] = {"speed": speed, "start": start, "pictures": pictures}


def _run(module: list[str], bound: float, variables: dict[str, str]) -> None:
    """Run a module, for at most so many seconds; what it has written by then counts."""
    try:
        subprocess.run([sys.executable, "-m", *module], env=os.environ | variables, timeout=bound, check=False)
    except subprocess.TimeoutExpired:
        print(f"{module[0]}: ended after {bound:.0f} s", flush=True)


def _read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise


if __name__ == "__main__":
    sys.exit(main())
