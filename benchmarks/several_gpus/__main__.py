"""What of the measurement on several GPUs of one machine is no run of otil-exp alone: each part within a bound.

    python -m benchmarks.several_gpus OUT [--minutes 9.5] [--device cuda|cpu] [--model sdxl_random|shapes] [--parts a,b]

Timed cells are experiments (`otil-exp -m experiment=bench/slices ...`), the machine, its links and its collectives are
`otil-selftest --device cuda`: docs/measuring.md. Here are compiled cells that get ready side by side, distrifuser's own
steps, steps without peers, and pictures compared value by value.

Each part is a process of its own with a time limit, so that one that hangs or dies costs only itself. OUT/results.json
and OUT/tables.md are written after each part; run folders lie in OUT too. --device cpu --model shapes tries the script
on a machine without GPUs: its times mean nothing, upstream is reported as not done, and what compiles runs eager.

On two H200s compiling alone takes more than five minutes. In three calls of less than ten:

    python -m benchmarks.several_gpus A --parts compiled_1024
    python -m benchmarks.several_gpus B --parts upstream,pictures,compute_only
    python -m benchmarks.several_gpus C --parts compiled_2048
    python -m benchmarks.several_gpus.tables A B C > tables.md
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmarks.several_gpus.parts import PARTS
from benchmarks.several_gpus.plan import Plan, keep, results
from otil_exp.launch.lifetime import die_with_parent


def main() -> int:
    arguments = _arguments()
    if not arguments.only:
        signal.signal(signal.SIGTERM, _told_to_end)  # before _visible, whose import of torch takes seconds
    plan = Plan(Path(arguments.out).absolute(), arguments.device, arguments.model, arguments.gpus or _visible())
    if arguments.only:  # in the process of one part
        die_with_parent(os.getppid())
        PARTS[arguments.only].measure(plan)
        return 0
    chosen = arguments.parts.split(",") if arguments.parts else list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        sys.exit(f"no part is called {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    plan.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * arguments.minutes
    from benchmarks.several_gpus.tables import tables

    failed = []
    for part in chosen:
        if not _run(part, plan, deadline):
            failed.append(part)
        (plan.out / "tables.md").write_text(tables(results(plan)), encoding="utf-8")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} parts done; not done: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _told_to_end(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.several_gpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.5, help="bound on the whole measurement")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--model", default="sdxl_random", choices=("sdxl_random", "shapes"))
    parser.add_argument("--gpus", type=int, help="ranks; default all visible GPUs, 2 on the CPU")
    parser.add_argument("--parts", help=f"some of {','.join(PARTS)}; default all, in this order")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser.parse_args()


def _visible() -> int:
    import torch

    return torch.cuda.device_count() or 2


def _run(part: str, plan: Plan, deadline: float) -> bool:
    """Run one part; whether it finished. What it wrote before it was stopped stays."""
    left = min(PARTS[part].seconds, deadline - time.monotonic())
    if left < 5:
        _note(part, plan, 0.0, "no time was left")
        return False
    start = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.several_gpus", str(plan.out), "--only", part]
    command += ["--device", plan.device, "--model", plan.model, "--gpus", str(plan.world_size)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(left)
        outcome = "done" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        outcome = f"stopped after {left:.0f} s"
    finally:  # also where this process is told to end
        _end(process)
    _note(part, plan, time.monotonic() - start, outcome)
    return outcome == "done"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part with all its processes, where it has not ended by itself."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _note(part: str, plan: Plan, seconds: float, outcome: str) -> None:
    keep("parts", part, {"outcome": outcome, "seconds": round(seconds, 1)}, plan)


if __name__ == "__main__":
    sys.exit(main())
