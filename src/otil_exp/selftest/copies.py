"""Copies between host and GPU, and from one GPU to another, by the driver alone: what the links give."""

from __future__ import annotations

import torch

from otil_exp.selftest.clock import milliseconds
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State

BYTES = 256 << 20
REPEATS = 10

LEAST_HOST_GB_S = 8.0
"""Half of what PCIe 3.0 gives on 16 lanes."""


def copies(plan: Plan) -> Finding:
    """Time copies of 256 MiB: pinned host memory to and from each GPU, and from each GPU to the next."""
    if plan.device == "cpu":
        raise LeftOutError("there is no GPU to copy to")
    figures = {f"host to {gpu}, GB/s": _from_host(gpu) for gpu in range(plan.world_size)}
    figures |= {f"{gpu} to host, GB/s": _to_host(gpu) for gpu in range(plan.world_size)}
    if plan.world_size > 1:
        pairs = [(gpu, (gpu + 1) % plan.world_size) for gpu in range(plan.world_size)]
        figures |= {f"{a} to {b}, GB/s": _across(a, b) for a, b in pairs}
    return judge_copies(figures)


def judge_copies(figures: dict[str, float]) -> Finding:
    """What the rates come to. figures: by "FROM to TO, GB/s"."""
    with_host = {name: rate for name, rate in figures.items() if "host" in name}
    slowest, rate = min(with_host.items(), key=lambda item: item[1])
    across = [each for name, each in figures.items() if name not in with_host]
    words = f"host {min(with_host.values()):.1f} to {max(with_host.values()):.1f} GB/s"
    words += f", GPU to GPU {min(across):.1f} to {max(across):.1f} GB/s" if across else ""
    if rate < LEAST_HOST_GB_S:
        return Finding(
            State.slow,
            f"{words}: {slowest.removesuffix(', GB/s')} is below {LEAST_HOST_GB_S:g}; see whether its PCIe link has "
            "all its lanes (`nvidia-smi -q -d PCIE`). Loading weights is slow, steps on one GPU are not",
            figures,
        )
    return Finding(State.fine, words, figures)


def _from_host(gpu: int) -> float:
    return _rate(torch.empty(BYTES, dtype=torch.uint8, pin_memory=True), _memory(gpu), gpu)


def _to_host(gpu: int) -> float:
    return _rate(_memory(gpu), torch.empty(BYTES, dtype=torch.uint8, pin_memory=True), gpu)


def _across(source: int, target: int) -> float:
    return _rate(_memory(source), _memory(target), source)


def _memory(gpu: int) -> torch.Tensor:
    return torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{gpu}")


def _rate(source: torch.Tensor, target: torch.Tensor, gpu: int) -> float:
    """GB/s of a copy that the GPU's current stream makes."""
    with torch.cuda.device(gpu):
        ms = milliseconds(lambda: target.copy_(source, non_blocking=True), REPEATS, torch.device("cuda", gpu))
    return round(BYTES / ms / 1e6, 2)
