"""How kernels read rows that they sum over: those of LayerNorm, and what fp8 counts beside GEGLU."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.choices import InductorChoices
from torch._inductor.runtime.hints import ReductionHint

LONGEST = 2048
"""Values of a row that a program holds in registers; SDXL's tokens have up to 1280."""


class RowsAtOnce(InductorChoices):
    """Reads a row once and keeps it, where Inductor by itself keeps up to 1024 values and reads longer rows thrice.

    Chooses for graphs that are compiled within `virtualized.V.set_choices_handler`.
    """

    @staticmethod
    def should_use_persistent_reduction(features: Any, cooperative_reduction: bool) -> bool:
        """features: SIMDKernelFeatures of a kernel. DEFAULT is what Inductor says, unseen, of very many rows."""
        if InductorChoices.should_use_persistent_reduction(features, cooperative_reduction):
            return True
        length = features.reduction_numel
        inner = features.get_reduction_hint() in (ReductionHint.INNER, ReductionHint.DEFAULT)
        wanted = inner and not cooperative_reduction and torch._inductor.config.triton.persistent_reductions
        return bool(wanted and length.is_Integer and length <= LONGEST)
