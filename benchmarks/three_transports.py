"""Two GPUs of one machine over three transports: NVLink, host memory, TCP; every method, codec off and on.

    python -m benchmarks.three_transports OUT [--minutes 9.5] [--device cuda|cpu] [--model sdxl_random|shapes]

Type it again until it says that nothing is left: each call ends within its minutes, and what is done is kept. NCCL's
own variables choose the transport. OUT/links/<transport>.yaml are its links (`otil_exp.links`), OUT/<transport>/runs
the run folders of mode=benchmark, OUT/tables.md seconds a picture by method and transport. --device cpu --model shapes
tries the script where there are no GPUs: its times mean nothing, and nothing is compiled or replayed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.several_gpus.cells import cell, run_cells
from benchmarks.several_gpus.plan import METHODS, Plan
from otil_exp.launch import launch
from otil_exp.launch.lifetime import die_with_parent
from otil_exp.methods.geometry import topology_of
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder

HOST_MEMORY = {"NCCL_P2P_DISABLE": "1"}
TRANSPORTS = {
    "nvlink": {},
    "host_memory": HOST_MEMORY,
    "tcp": HOST_MEMORY | {"NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"},
}
"""NCCL's variables; tcp is the loopback."""

CODECS = {
    "": (),
    "residual4": ("codec=residual4",),
    "residual4 all": ("codec=residual4", "codec.scope=all"),
}
CELLS = (
    "reference 1gpu",
    *(f"{method} 2gpu_nosplit" for method in (*METHODS, "fold", "step_reuse")),
    "guide 2gpu_split",
)
"""Methods with their topology; on 2gpu_split, a GPU for each half of the batch, all patch methods are one."""

SIDES = (1024, 2048)
LONGEST_S = {"links": 120, "cuda_graph": 530, "compiled": 480}
"""Seconds that a piece may take: the links of a transport, its cells of one size, or one compiled cell."""


@dataclass(frozen=True)
class Piece:
    """What one process measures."""

    transport: str
    what: str
    """links, or the engine of its cells."""

    side: int = 0
    cells: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = (self.transport, self.what, str(self.side or ""), *self.cells[:1])
        return "-".join(filter(None, words)).replace(" ", "-")

    @property
    def bound_s(self) -> int:
        return LONGEST_S[self.what]


def pieces() -> list[Piece]:
    """All of them, what is missed most first."""
    found = [Piece(transport, "links") for transport in TRANSPORTS]
    found += [Piece(transport, "cuda_graph", side, CELLS) for side in SIDES for transport in TRANSPORTS]
    return found + [
        Piece(transport, "compiled", side, (cell,)) for side in SIDES for cell in CELLS for transport in TRANSPORTS
    ]


def main() -> int:
    """Run pieces until the minutes are over; the exit code is 0 when none is left."""
    arguments = _arguments()
    out = Path(arguments.out).absolute()
    if arguments.only:
        die_with_parent(os.getppid())
        return _measure(_piece(arguments.only), out, arguments.device, arguments.model)
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * arguments.minutes
    left = [one for one in pieces() if not _mark(out, one, "done").exists()]
    left.sort(key=lambda one: _mark(out, one, "failed").exists())  # in a call before: the others come first
    failed = []
    while left and deadline - time.monotonic() > min(30, left[0].bound_s):
        one = left.pop(0)
        if not _run(one, out, arguments, deadline):
            failed.append(one)
    (out / "tables.md").write_text(tables(out), encoding="utf-8")
    waiting = [one.name for one in (*failed, *left)]
    print(f"left: {', '.join(waiting)}: type the command again" if waiting else "nothing is left")
    return 1 if waiting else 0


def _run(one: Piece, out: Path, arguments: argparse.Namespace, deadline: float) -> bool:
    """Whether a piece was finished; its process dies at its bound, and its ranks with it."""
    command = [sys.executable, "-m", "benchmarks.three_transports", str(out), "--only", one.name]
    command += ["--device", arguments.device, "--model", arguments.model]
    bound, begun = min(one.bound_s, deadline - time.monotonic()), time.monotonic()
    try:
        code = subprocess.run(command, env=os.environ | TRANSPORTS[one.transport], timeout=bound).returncode
        outcome = "done" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        outcome = f"stopped after {bound:.0f} s"
    print(f"{one.name}: {outcome}, {time.monotonic() - begun:.0f} s", flush=True)
    mark = _mark(out, one, "done" if outcome == "done" else "failed")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return outcome == "done"


def _measure(one: Piece, out: Path, device: str, model: str) -> int:
    """In the process of a piece."""
    if one.what == "links":
        launch(_links, 2, one.transport, out, device)
        return 0
    plan = Plan(out / one.transport, device, model, 2)
    engine = f"engine={one.what if device == 'cuda' else 'eager'}"
    cells = {}
    for words in one.cells:
        method, topology = words.split()
        for codec in CODECS.values() if method != "reference" else [()]:
            made = _timed(plan, one.side, method, topology, engine, *codec)
            cells[made.folder.path] = made  # a method that has no use for a codec is one cell
    for topology in ("1gpu", "2gpu_nosplit", "2gpu_split"):
        if alike := [made for made in cells.values() if topology_of(made.effective).name == topology]:
            run_cells(alike)
    return 0 if all(made.folder.finished for made in cells.values()) else 1


def _timed(plan: Plan, side: int, method: str, topology: str, *overrides: str) -> Cell:
    """A cell of mode=benchmark, one picture after one that warms up."""
    pixels, steps = plan.sizes(side)
    shape = (f"height={pixels}", f"width={pixels}", f"num_inference_steps={steps}", "mode=benchmark")
    often = ("benchmark.warmup_images=1", "benchmark.repeats=1", "benchmark.drop_extremes=0")
    return cell(plan, method, topology, *shape, *often, *overrides)


def _links(transport: str, out: Path, device: str) -> None:
    """On every rank."""
    from otil_exp.links import write_links
    from otil_exp.links.measure import SIZES, measure_links
    from otil_exp.topology import Topology, join, leave

    ranks = join(Topology(world_size=2, split_batch=False), device, 60.0)
    tried = device == "cpu"
    links = measure_links(transport, ranks.device, sizes=SIZES[:4] if tried else SIZES, budget_s=5.0 if tried else 60.0)
    if ranks.is_main:
        write_links(links, out / "links" / f"{transport}.yaml")
    leave()


def tables(out: Path) -> str:
    """Seconds a picture, and the ms of a warm-up, steady and refresh step, by cell and transport."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for transport in TRANSPORTS:
        for path in sorted((out / transport / "runs").glob("*/record.json")):
            folder = RunFolder(path.parent)
            if folder.finished:
                found.setdefault(_cell(folder), {})[transport] = _words(folder)
    head = ["side", "engine", "method", "topology", "codec", *TRANSPORTS]
    rows = [[*cell, *(words.get(transport, "-") for transport in TRANSPORTS)] for cell, words in sorted(found.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def _cell(folder: RunFolder) -> tuple[str, ...]:
    record = folder.record
    codec = record["effective"]["codec"]
    words = [codec["quantizer"], "residual" if codec["residual"] else "", "all" if codec["scope"] == "all" else ""]
    how = (record["engine"], record["method"], record["topology"]["name"])
    return f"{folder.config['height']:5}", *how, " ".join(filter(None, words))


def _words(folder: RunFolder) -> str:
    def of(kind: str) -> str:  # a method without steps of a kind has no value
        value = folder.metrics.get(f"latency/{kind}_ms", {}).get("value")
        return "-" if value is None else f"{value:.1f}"

    steps = " / ".join(of(kind) for kind in ("warmup", "steady", "refresh"))
    return f"{folder.metrics['latency/image_s']['value']:.3f}; {steps}"


def _mark(out: Path, one: Piece, outcome: str) -> Path:
    return out / outcome / one.name


def _piece(name: str) -> Piece:
    return next(one for one in pieces() if one.name == name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.three_transports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.5, help="bound on this call")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--model", default="sdxl_random", choices=("sdxl_random", "shapes"))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
