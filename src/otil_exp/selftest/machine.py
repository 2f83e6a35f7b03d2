"""What the machine is: its GPUs, and what joins them."""

from __future__ import annotations

import os
import re

import torch

from otil_exp.run.provenance import provenance
from otil_exp.selftest.plan import Finding, Plan, State

Links = dict[str, str]
"""Pair of GPUs ("0-1") -> what joins them, in nvidia-smi's words: NV18, PIX, PHB, NODE, SYS."""

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
    links = links_between(facts["gpu_links"] or "", count)
    state, words = judge_links(links, access)
    return Finding(state, f"{count} x {facts['gpus'][0]}: {words}", facts | {"links": links})


def links_between(topology: str, count: int) -> Links:
    """Read the matrix of `nvidia-smi topo -m` for the first so many GPUs; empty where there is none."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in topology.splitlines()]
    matrix = {row[0]: row[1:] for row in rows if len(row) > count and re.fullmatch(r"GPU\d+", row[0]) and "X" in row}
    return {
        f"{a}-{b}": matrix[f"GPU{a}"][b]
        for a in range(count)
        for b in range(a + 1, count)
        if f"GPU{a}" in matrix and len(matrix[f"GPU{a}"]) > b
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
