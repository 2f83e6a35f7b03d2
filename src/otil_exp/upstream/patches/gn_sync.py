"""GroupNorm stays synchronised after warm-up while convolutions and attention are silent."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from otil_exp.upstream.imports import DistriGroupNorm
from otil_exp.upstream.patches.replace import replaced


def gn_sync() -> AbstractContextManager[None]:
    """Keep the synchronised branch of GroupNorm on in mode no_sync, against seams.

    The branch (modules/pp/groupnorm.py:73) is chosen by the layer's counter, so the counter is held at the last
    warm-up step during the call: the arithmetic is that of whichever forward is installed. Other modes are untouched.
    """
    forward = DistriGroupNorm.forward

    def forward_synchronised(self: DistriGroupNorm, x: torch.Tensor) -> torch.Tensor:
        if self.distri_config.mode != "no_sync":
            return forward(self, x)
        counter = self.counter
        self.counter = min(counter, self.distri_config.warmup_steps)
        output = forward(self, x)
        self.counter = counter + 1
        return output

    return replaced(DistriGroupNorm, "forward", forward_synchronised)
