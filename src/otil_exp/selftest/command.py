"""`otil-selftest`: is this machine fit, and is the exchange right here? No weights, no network."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from otil_exp.run_folder.whole import make_writable
from otil_exp.selftest.parts import PARTS, WITHOUT_DEVICE
from otil_exp.selftest.plan import LINKS_FILE, Finding, Plan
from otil_exp.selftest.process import run_part
from otil_exp.selftest.said import say, verdict
from otil_exp.terminal import console, for_a_reader

EXAMPLES = """examples:
  otil-selftest                                seconds, on the CPU: does the exchange keep its promises?
  otil-selftest --device cuda                  all parts on all visible GPUs, some minutes
  otil-selftest --device cuda --gpus 2 --json fit.json
  otil-selftest --device cuda --parts collectives --links node.yaml
exit code: 0 the machine is fit, 1 it is not, 2 what was typed is impossible"""


@for_a_reader()
def main(argv: Sequence[str] | None = None) -> int:
    """Try the parts one after the other, say what each found and what to do; return the exit code (1: unfit)."""
    parser = _parser()
    options = parser.parse_args(argv)
    world_size = _world_size(parser, options.device or "cpu", options.gpus)
    names = _chosen(parser, options)
    _check_files(parser, options)
    out = console()
    with _ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="otil-selftest-") as folder:
        plan = Plan(options.device or "cpu", world_size, Path(folder))
        findings = {}
        for name in names:
            out.print(f"{name}: {PARTS[name].what} (at most {PARTS[name].seconds:.0f} s)")
            findings[name] = run_part(name, plan)
        measured = (plan.folder / LINKS_FILE).exists()
        if options.links is not None and measured:
            shutil.copyfile(plan.folder / LINKS_FILE, options.links)
    say(findings, out)
    if options.links is not None and not measured:
        out.print(f"--links {options.links}: not written, because the part collectives measured no links")
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(plan, findings), indent=1) + "\n", encoding="utf-8")
    return 0 if verdict(findings) else 1


def as_json(plan: Plan, findings: Mapping[str, Finding]) -> dict[str, Any]:
    """What `--json` writes: plain values."""
    return {
        "fit": verdict(findings),
        "device": plan.device,
        "world_size": plan.world_size,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parts": {
            name: {
                "state": found.state.value,
                "sentence": found.sentence,
                "seconds": found.seconds,
                "figures": found.figures,
            }
            for name, found in findings.items()
        },
    }


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process by way of what ends a part and its ranks."""

    def told_to_end(signum: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, told_to_end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_files(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """See that what is measured in minutes can be kept."""
    for name in ("json", "links"):
        if (file := getattr(options, name)) is not None:
            if file.is_dir():
                parser.error(f"--{name} {file} is a folder: name a file in it, such as {file / name}")
            try:
                make_writable(file.absolute().parent, f"--{name}")
            except ValueError:
                parser.error(f"--{name} {file}: {file.parent} cannot be written to; name a file elsewhere")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "otil-selftest", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="try all parts there (default: promises, on the CPU)")
    parser.add_argument("--gpus", type=int, metavar="N", help="ranks (default: visible GPUs; 2 on the CPU)")
    parser.add_argument("--parts", metavar="A,B", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--links", type=Path, metavar="FILE", help="write the curves of the links there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write findings and figures there")
    return parser


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Names of the parts that were asked for, in their order."""
    if options.parts is None:
        if options.links is not None and not options.device:
            parser.error(f"--links {options.links}: say of what, such as --device cuda")
        return list(PARTS if options.device else WITHOUT_DEVICE)
    asked = options.parts.split(",")
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"--parts {options.parts}: there is no {', '.join(unknown)}; use some of {','.join(PARTS)}")
    if options.links is not None and "collectives" not in asked:
        parser.error(
            f"--links {options.links}: the part collectives measures them; use --parts {options.parts},collectives"
        )
    return [name for name in PARTS if name in asked]


def _world_size(parser: argparse.ArgumentParser, device: str, asked: int | None) -> int:
    """Ranks; exits with a sentence where there are not as many GPUs."""
    if device == "cpu":
        if asked is not None and asked < 2:
            parser.error(f"--gpus {asked}: ranks on the CPU are at least 2")
        return asked or 2
    import torch  # seconds

    visible = torch.cuda.device_count()
    if not visible:
        parser.error("--device cuda: no GPU is visible; use --device cpu")
    if asked is not None and not 1 <= asked <= visible:
        parser.error(f"--gpus {asked}: use 1 to {visible}, the visible GPUs")
    return asked or visible
