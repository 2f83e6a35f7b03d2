"""What is timed: one rank's step by method, engine, size and place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

ON_CPU = not torch.cuda.is_available()


@dataclass(frozen=True)
class Case:
    """One rank's step."""

    method: str
    engine: str = "cuda_graph"
    size: int = 1024
    world_size: int = 4
    split_batch: bool = True
    gn_sync: str = "false"
    both: bool = False
    """Whether synchronous steps are made ready and timed too."""

    variant: str = ""
    """flash: attention by FlashAttention, PyTorch's own first choice, instead of cuDNN. autotune: matrix products by
    the fastest of Triton's and cuBLAS's. one-graph: all transformer blocks in the UNet's graph. fp8:
    engine.products=fp8. fp8-uncounted: the same without counting what is cut. fp8-outputs: those of attention, too."""

    @property
    def name(self) -> str:
        ranks = f"{self.world_size}{'s' if self.split_batch else ''}"
        extras = (
            ["gn-" + self.gn_sync] * (self.gn_sync != "false")
            + ["both"] * self.both
            + [self.variant] * bool(self.variant)
        )
        return "-".join([self.method, self.engine, str(self.size), ranks, *extras])


UPSTREAM = "eager" if ON_CPU else "cuda_graph"
"""How upstream's layers are run."""


def whole(engine: str, size: int, **rest: Any) -> Case:
    return Case("reference", engine, size, 1, False, **rest)


def upstream_rank(size: int) -> Case:
    """Upstream's rank of 4, split; the one at 1024 x 1024 has its synchronous steps timed, too."""
    return Case("no_sync", UPSTREAM, size, both=size == 1024)


def cases_on_gpu() -> list[Case]:
    cases = [
        *(whole("compiled", size) for size in (1024, 2048, 3840)),
        *(Case("no_sync", "compiled", size) for size in (1024, 2048, 3840)),
        Case("no_sync", "compiled", gn_sync="true"),
        Case("no_sync", "compiled", gn_sync="fused", both=True),
    ]
    ranks = ((2, True), (2, False), (4, False), (8, True), (8, False))
    cases += [Case("no_sync", "compiled", 1024, *rank) for rank in ranks]
    cases += [
        whole("compiled", 1024, variant="flash"),
        Case("no_sync", "compiled", variant="flash"),
        Case("no_sync", "compiled", variant="autotune"),
        Case("no_sync", "compiled", variant="one-graph"),
        Case("no_sync", "compiled", gn_sync="fused", both=True, variant="one-graph"),
        *(whole("compiled", 1024, variant=variant) for variant in ("fp8", "fp8-uncounted")),
        *(Case("no_sync", "compiled", variant=variant) for variant in ("fp8-uncounted", "fp8-outputs")),
        *(Case("no_sync", "compiled", size, variant="fp8") for size in (1024, 2048, 3840)),
        Case("no_sync", "compiled", gn_sync="true", variant="fp8"),
        Case("no_sync", "compiled", gn_sync="true", variant="fp8-uncounted"),
    ]
    upstream = [replace(case, engine=UPSTREAM) for case in cases if not case.variant and case.gn_sync != "fused"]
    return cases + [replace(case, both=case == Case("no_sync", UPSTREAM)) for case in upstream] + [Case("distrifusion")]


def cases_on_cpu() -> list[Case]:
    kinds = [
        whole("compiled", 256),
        *(Case("no_sync", "compiled", 256, *rank) for rank in ((2, False), (4, True))),
        Case("no_sync", "compiled", 256, gn_sync="true"),
    ]
    quantised = [replace(case, variant="fp8") for case in kinds]
    return kinds + [replace(case, engine=UPSTREAM) for case in kinds] + quantised


CASES = cases_on_cpu() if ON_CPU else cases_on_gpu()
