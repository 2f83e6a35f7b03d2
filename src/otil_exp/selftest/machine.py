"""What the machine is: its GPUs, and what joins them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import torch

from otil_exp.run.provenance import provenance
from otil_exp.selftest.plan import Finding, Plan, State

Links = dict[str, str]
"""Pair of visible GPUs ("0-1") -> what joins them, in nvidia-smi's words: NV18, PIX, PHB, NODE, SYS."""

THROUGH = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe host bridge",
    "NODE": "the host bridges of one processor",
    "SYS": "the link between two processors",
}
"""nvidia-smi's word -> what it is."""


def machine(plan: Plan) -> Finding:
    """Describe the machine, and say what lies between its GPUs."""
    facts = provenance()
    if plan.device == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        words = f"{facts['cpu']['model']}, {cores} cores: pictures and bytes are exact, times say nothing about GPUs"
        return Finding(State.fine, words, facts)
    count = plan.world_size
    access = [[a == b or torch.cuda.can_device_access_peer(a, b) for b in range(count)] for a in range(count)]
    facts |= {"peer_access": access, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    links = links_between(facts["gpu_links"] or "", numbers(os.environ.get("CUDA_VISIBLE_DEVICES"), count))
    state, words = judge_links(links, access)
    return Finding(state, f"{count} x {facts['gpus'][0]}: {words}", facts | {"links": links})


def numbers(visible: str | None, count: int) -> list[int]:
    """nvidia-smi's numbers of the first so many visible GPUs; none where CUDA_VISIBLE_DEVICES names them otherwise."""
    if visible is None:
        return list(range(count))
    named = visible.split(",")[:count]
    return [int(one) for one in named] if all(one.strip().isdecimal() for one in named) else []


def links_between(topology: str, gpus: Sequence[int]) -> Links:
    """Read what joins GPUs, by nvidia-smi's numbers, from the matrix of `nvidia-smi topo -m` as far as it has them."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in topology.splitlines()]
    matrix = {int(row[0][3:]): row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and "X" in row}
    return {
        f"{a}-{b}": matrix[gpus[a]][gpus[b]]
        for a in range(len(gpus))
        for b in range(a + 1, len(gpus))
        if gpus[b] < len(matrix.get(gpus[a], ()))
    }


def judge_links(links: Links, access: list[list[bool]]) -> tuple[State, str]:
    """What the links come to. access: whether GPU a reads the memory of GPU b, [a][b]."""
    if len(access) == 1:
        return State.fine, "alone, so nothing lies between GPUs; several ranks share it with device=shared_gpu"
    without = [f"{a}-{b}" for a in range(len(access)) for b in range(a + 1, len(access)) if not access[a][b]]
    if without:
        return State.slow, (
            f"pairs {', '.join(without)} have no peer access, so what their ranks exchange goes through host memory: "
            "prefer methods that send little (`guide`, `otil`), or GPUs that are joined by NVLink"
        )
    by_pcie = {pair: kind for pair, kind in links.items() if not kind.startswith("NV")}
    if by_pcie:
        pair, kind = next(iter(by_pcie.items()))
        return State.slow, (
            f"pair {pair} is joined by {THROUGH.get(kind, kind)} ({kind}), not by NVLink: prefer methods that send "
            "little (`guide`, `otil`), or choose GPUs with CUDA_VISIBLE_DEVICES that NVLink joins"
        )
    if not links:
        return State.fine, "every GPU reads the memory of every other; nvidia-smi does not say what joins them"
    return State.fine, f"every pair is joined by NVLink ({', '.join(sorted(set(links.values())))})"
