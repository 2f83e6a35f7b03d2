"""otil-selftest: does the exchange keep its promises here? Seconds, CPU only, no weights, no network.

Real ranks (processes joined by gloo through a file) rehearse two rounds of silent steps on random latents, and each
judges what it then knows by plain slicing, without the code under test.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch import distributed as dist
from torch.multiprocessing import get_context
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from otil_exp.exchange import BlockGrid, LatentExchange

GRID = BlockGrid(rows=16, width=32, block_size=4)  # K = 32
K_SENT = 5  # does not divide K, so that the last step of a round fills up
ROUND = math.ceil(GRID.count / K_SENT)

RAN = "all ranks run to the end"
OWN = "own slice is bit-exact fresh"
REMOTE = "remote blocks are received or stale, never a blend"
BUDGET = f"exactly {K_SENT} of {GRID.count} blocks arrive from each peer a step"
COVERAGE = f"every block arrives within {ROUND} steps"
FINAL = "finalize is exact on every rank"
CHECKS = (RAN, OWN, REMOTE, BUDGET, COVERAGE, FINAL)

Failures = dict[str, str]
"""Failed check to where it first failed; empty when all is well."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks, print them as a table and name those that failed; return the exit code (1: a check failed)."""
    options = _parse(argv)
    console = Console()
    table = Table("check", *(f"{ranks} ranks" for ranks in options.ranks), title="otil-selftest")
    failures = {ranks: run_checks(ranks, options.timeout) for ranks in options.ranks}
    for check in CHECKS:
        table.add_row(check, *(_mark(check, failures[ranks]) for ranks in options.ranks))
    console.print(table)
    for ranks, failed in failures.items():
        for check, reason in failed.items():
            console.print(f"FAILED with {ranks} ranks: {check}: {reason}", style="red", markup=False, soft_wrap=True)
    return 1 if any(failures.values()) else 0


def _mark(check: str, failures: Failures) -> str:
    if check in failures:
        return "[red]FAIL[/]"
    return "not run" if RAN in failures else "[green]pass[/]"


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="otil-selftest", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks to rehearse with")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds after which a rehearsal is ended")
    options = parser.parse_args(argv)
    if min(options.ranks) < 2:
        parser.error(f"--ranks {min(options.ranks)}: an exchange takes at least 2 ranks, such as --ranks 2 4")
    if options.timeout <= 0:
        parser.error(f"--timeout {options.timeout:g}: use a positive number of seconds")
    return options


def run_checks(ranks: int, timeout: float) -> Failures:
    """Rehearse with real ranks, none of which outlives `timeout` seconds."""
    # Ranks fork from a server that has torch loaded but has run nothing: safe like spawn, and seconds faster.
    get_context("forkserver").set_forkserver_preload(["torch", "torch.distributed"])
    with tempfile.TemporaryDirectory(prefix="otil-selftest-") as folder:
        context = start_processes(
            _run_rank, (ranks, folder, timeout), nprocs=ranks, join=False, daemon=True, start_method="forkserver"
        )
        deadline = time.monotonic() + timeout
        try:
            while not context.join(timeout=max(0.0, deadline - time.monotonic()), grace_period=1.0):
                if time.monotonic() >= deadline:
                    return {RAN: f"they had not finished after {timeout:g} s"}
        except (ProcessRaisedException, ProcessExitedException) as error:
            return {RAN: str(error).strip()}
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        verdicts = [json.loads(_verdict_path(folder, rank).read_text()) for rank in range(ranks)]
    return {check: reason for verdict in reversed(verdicts) for check, reason in verdict.items()}


def _run_rank(rank: int, ranks: int, folder: str, timeout: float) -> None:
    torch.set_num_threads(1)
    meeting = Path(folder, "store").as_uri()
    dist.init_process_group("gloo", meeting, timedelta(seconds=timeout), world_size=ranks, rank=rank)
    _verdict_path(folder, rank).write_text(json.dumps(rehearse(rank, ranks)))
    dist.destroy_process_group()


def _verdict_path(folder: str, rank: int) -> Path:
    return Path(folder, f"rank{rank}.json")


def rehearse(rank: int, ranks: int) -> Failures:
    """Take part in one synchronous step, two rounds of silent steps and the final gather; judge each."""
    exchange = LatentExchange(GRID, rank, ranks, K_SENT)
    known = exact_latent(0, ranks)
    exchange.remember(known)
    failures: Failures = {}
    arrived: set[tuple[int, int]] = set()
    for step in range(1, 2 * ROUND + 1):
        exact = exact_latent(step, ranks)
        now = exchange.step(only_own(exact, rank))
        reasons, received = judge(now, known, exact, rank)
        arrived |= received
        if step % ROUND == 0:
            if missing := (ranks - 1) * GRID.count - len(arrived):
                reasons[COVERAGE] = f"{missing} remote blocks did not arrive in this round"
            arrived = set()
        failures = {check: f"rank {rank}, step {step}: {reason}" for check, reason in reasons.items()} | failures
        known = now
    exact = exact_latent(2 * ROUND + 1, ranks)
    if not torch.equal(exchange.finalize(only_own(exact, rank)), exact):
        failures[FINAL] = f"rank {rank}: the gathered latent is not the exact one"
    return failures


def exact_latent(step: int, ranks: int) -> Tensor:
    """Draw the whole latent of a step, (1, 4, ranks * 16, 32) fp16: the same on every rank, no two steps alike."""
    noise = torch.randn(1, 4, ranks * GRID.rows, GRID.width, generator=torch.Generator().manual_seed(step))
    return noise.half()


def only_own(latents: Tensor, rank: int) -> Tensor:
    """Hide the slices of the others, as a rank knows nothing of them after a silent step."""
    hidden = torch.full_like(latents, float("nan"))
    own = slice(rank * GRID.rows, (rank + 1) * GRID.rows)
    hidden[:, :, own] = latents[:, :, own]
    return hidden


def judge(now: Tensor, before: Tensor, exact: Tensor, rank: int) -> tuple[Failures, set[tuple[int, int]]]:
    """Compare what a rank knows now with what it knew before and with the exact latent, all (1, 4, H, 32).

    Returns the failed checks, and the (slice, block) of every remote block that was received.
    """
    failures: Failures = {}
    received: set[tuple[int, int]] = set()
    size = GRID.block_size
    for peer in range(now.shape[2] // GRID.rows):
        rows = slice(peer * GRID.rows, (peer + 1) * GRID.rows)
        if peer == rank:
            if not torch.equal(now[:, :, rows], exact[:, :, rows]):
                failures[OWN] = "the own slice is not what the scheduler gave"
            continue
        count = 0
        for block in range(GRID.count):
            y, x = divmod(block, GRID.width // size)
            place = (..., slice(rows.start + y * size, rows.start + (y + 1) * size), slice(x * size, (x + 1) * size))
            if torch.equal(now[place], exact[place]):
                received.add((peer, block))
                count += 1
            elif not torch.equal(now[place], before[place]):
                failures[REMOTE] = f"block {block} of slice {peer} is neither received nor what was known before"
        if count != K_SENT:
            failures[BUDGET] = f"{count} blocks arrived from slice {peer}, not {K_SENT}"
    return failures, received


if __name__ == "__main__":
    raise SystemExit(main())
