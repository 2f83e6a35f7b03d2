"""Does the exchange keep its promises here?

Real ranks rehearse two rounds of silent steps on random latents, and each judges what it then knows by plain slicing,
without the code under test.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch import distributed as dist

from otil_exp.exchange import BlockGrid, LatentExchange
from otil_exp.launch import launch
from otil_exp.selftest.plan import Finding, Plan, State
from otil_exp.topology import Topology, join, leave

GRID = BlockGrid(rows=16, width=32, block_size=4)  # K = 32
K_SENT = 5  # does not divide K, so that the last step of a round fills up
ROUND = math.ceil(GRID.count / K_SENT)

OWN = "own slice is bit-exact fresh"
REMOTE = "remote blocks are received or stale, never a blend"
BUDGET = f"exactly {K_SENT} of {GRID.count} blocks arrive from each peer a step"
COVERAGE = f"every block arrives within {ROUND} steps"
FINAL = "finalize is exact on every rank"
CHECKS = (OWN, REMOTE, BUDGET, COVERAGE, FINAL)

Failures = dict[str, str]
"""Failed check to where it first failed; empty when all is well."""

TIMEOUT_S = 30.0


def promises(plan: Plan) -> Finding:
    """Rehearse on real ranks."""
    failures = launch(_on_rank, plan.ranks, plan, threads=1)
    assert failures is not None, "rank 0 is started here"
    return judge_promises(failures, plan.ranks)


def judge_promises(failures: Failures, ranks: int) -> Finding:
    """What failed checks come to."""
    figures = {check: failures.get(check, "kept") for check in CHECKS}
    if failures:
        broken = "; ".join(f"{check}: {reason}" for check, reason in failures.items())
        return Finding(State.broken, f"{broken}. Pictures of this installation are not to be trusted", figures)
    words = f"{len(CHECKS)} promises kept by {ranks} ranks over {2 * ROUND} steps, to the last bit"
    return Finding(State.fine, words, figures)


def _on_rank(plan: Plan) -> Failures:
    """Rehearse as one rank; the failures of all ranks, those of the first one where several have one."""
    ranks = join(Topology(world_size=plan.ranks, split_batch=False), plan.kind, TIMEOUT_S)
    verdicts: list[Failures] = [{} for _ in range(plan.ranks)]
    dist.all_gather_object(verdicts, rehearse(ranks.rank, plan.ranks, ranks.device))
    leave()
    return {check: reason for verdict in reversed(verdicts) for check, reason in verdict.items()}


def rehearse(rank: int, ranks: int, device: torch.device) -> Failures:
    """Take part in one synchronous step, two rounds of silent steps and the final gather; judge each.

    device: where the exchange computes; it is judged on the CPU.
    """
    exchange = LatentExchange(GRID, rank, ranks, K_SENT)
    known = exact_latent(0, ranks)
    exchange.remember(known.to(device))
    failures: Failures = {}
    arrived: set[tuple[int, int]] = set()
    for step in range(1, 2 * ROUND + 1):
        exact = exact_latent(step, ranks)
        now = exchange.step(only_own(exact, rank).to(device)).cpu()
        reasons, received = judge(now, known, exact, rank)
        arrived |= received
        if step % ROUND == 0:
            if missing := (ranks - 1) * GRID.count - len(arrived):
                reasons[COVERAGE] = f"{missing} remote blocks did not arrive in this round"
            arrived = set()
        failures = {check: f"rank {rank}, step {step}: {reason}" for check, reason in reasons.items()} | failures
        known = now
    exact = exact_latent(2 * ROUND + 1, ranks)
    if not torch.equal(exchange.finalize(only_own(exact, rank).to(device)).cpu(), exact):
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
