"""Dynamic polling: every block has its turn, the most informative ones first."""

from __future__ import annotations

import torch
from torch import Tensor

_UNVISITED_BONUS = 10.0
"""More than any score (SCORES), so that a block not sent in this round goes before all that were."""


class Polling:
    """Choose k of K blocks a step so that each is sent within ceil(K / k) steps, a round.

    The choice is topk(score + 10 * unvisited, k): unvisited blocks first, then the best visited ones, which fill up the
    last step of a round if k does not divide K. The step that sends the last unvisited block starts the next round.
    All that is known of a round lies in one tensor on the device, at the same place throughout: the host never reads
    it, and a choice can be recorded in a CUDA graph.
    """

    def __init__(self, count: int, *, enabled: bool = True, device: torch.device | str | None = None) -> None:
        """count: blocks of a slice, K. enabled=False chooses by score alone (ablation). device: of the scores."""
        self.enabled = enabled
        self._unvisited = torch.ones(count, dtype=torch.float32, device=device)

    def choose(self, scores: Tensor, k: int) -> Tensor:
        """Return the indices (k,) int64 of the blocks to send, in any order; marks them sent. scores: (K,) float32."""
        if not self.enabled:
            return scores.topk(k, sorted=False).indices
        chosen = scores.add(self._unvisited, alpha=_UNVISITED_BONUS).topk(k, sorted=False).indices
        self._unvisited.index_fill_(0, chosen, 0.0)
        self._unvisited.eq_(self._unvisited.amax())  # nothing changes, or none is left and all are unvisited again
        return chosen

    def restart(self) -> None:
        """Begin a round: no block has been sent."""
        self._unvisited.fill_(1.0)
