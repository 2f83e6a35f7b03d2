"""What the layers of a slice have in common: context that synchronous steps renew and silent ones read."""

from __future__ import annotations

import torch
from torch import nn


class SlicedLayer(nn.Module):
    """A layer in its synchronous form; `silent_copy` of tree.py makes the form that exchanges nothing."""

    synchronous = True
    """Whether a call renews the context before it is used."""

    def _keep(self, name: str, fresh: torch.Tensor) -> None:
        """Store fresh context under a name: memory of its own at the first call, written in place later."""
        if getattr(self, name, None) is None:
            self.register_buffer(name, fresh.clone(memory_format=torch.contiguous_format), persistent=False)
        else:
            getattr(self, name).copy_(fresh)
