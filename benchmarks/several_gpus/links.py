"""What the machine is: GPUs, links, peer access, versions."""

from __future__ import annotations

import torch

from benchmarks.several_gpus.plan import Plan, keep
from otil_exp.run.provenance import now, provenance


def links(plan: Plan) -> None:
    """Keep the machine's description."""
    keep("links", "provenance", provenance(), plan)
    keep("links", "date", now(), plan)
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        access = [[a == b or torch.cuda.can_device_access_peer(a, b) for b in range(count)] for a in range(count)]
        keep("links", "peer_access", access, plan)
        keep("links", "nccl", ".".join(map(str, torch.cuda.nccl.version())), plan)
