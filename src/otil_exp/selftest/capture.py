"""Can a CUDA graph hold collectives here? `engine=cuda_graph` and `engine=compiled` need it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributed as dist

from otil_exp.launch import launch
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State
from otil_exp.topology import Topology, join, leave

VALUES = 1 << 20
"""float32 values that a rank contributes."""

TIMEOUT_S = 30.0
RIGHT = "captured, right in 3 replays"


def capture(plan: Plan) -> Finding:
    """Capture a blocking and an asynchronous all_gather and all_reduce, and replay them with new inputs."""
    if plan.kind != "cuda":
        raise LeftOutError("NCCL is what a graph holds, and it needs two GPUs")
    outcomes = launch(_on_rank, plan.ranks, plan)
    assert outcomes is not None, "rank 0 is started here"
    return judge_capture(outcomes)


def judge_capture(outcomes: dict[str, str]) -> Finding:
    """What the outcomes come to. outcomes: by name of the collective; RIGHT, or what went wrong."""
    wrong = [f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome != RIGHT]
    if wrong:
        return Finding(
            State.broken,
            f"{'; '.join(wrong)}. Use engine=eager, or another version of torch or NCCL",
            dict(outcomes),
        )
    return Finding(State.fine, f"graphs hold {', '.join(outcomes)}, and replays are right", dict(outcomes))


def _on_rank(plan: Plan) -> dict[str, str]:
    ranks = join(Topology(world_size=plan.ranks, split_batch=False), plan.kind, TIMEOUT_S)
    own = torch.zeros(VALUES, device=ranks.device)
    parts = [torch.empty_like(own) for _ in range(plan.ranks)]

    def gathered(asynchronous: bool) -> torch.Tensor:
        work = dist.all_gather(parts, own, async_op=asynchronous)
        other = own * 2  # what an asynchronous collective may hide behind
        if work is not None:
            work.wait()
        return torch.stack(parts).sum(0) + 0 * other

    def reduced(asynchronous: bool) -> torch.Tensor:
        total = own.clone()
        work = dist.all_reduce(total, async_op=asynchronous)
        if work is not None:
            work.wait()
        return total

    outcomes = {}
    for name, call in {"all_gather": gathered, "all_reduce": reduced}.items():
        for asynchronous in (False, True):
            label = f"{name}{' async_op' if asynchronous else ''}"
            outcomes[label] = _captured(lambda call=call, a=asynchronous: call(a), own, plan.ranks)  # type: ignore[misc]
    leave()
    return outcomes


def _captured(call: Callable[[], torch.Tensor], own: torch.Tensor, world_size: int) -> str:
    """Capture and replay with three different inputs; the graph is gone afterwards."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            output = call()
        for value in (1.0, 2.0, 3.0):
            own.fill_(value)
            graph.replay()
            torch.cuda.synchronize()
            if not bool((output == value * world_size).all()):
                return f"replay of {value} is wrong: {output.unique().tolist()[:4]}"
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return RIGHT
