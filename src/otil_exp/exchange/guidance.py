"""CFG repair: give both ranks of a pair both halves of the noise prediction."""

from __future__ import annotations

from torch import Tensor
from torch import distributed as dist

from otil_exp.exchange.gather import gather


def repair_pair(noise_pred_local: Tensor, batch_half: int, group: dist.ProcessGroup | None) -> Tensor:
    """Complete a slice's noise prediction with the other half of the CFG batch.

    noise_pred_local: (1, 4, h / N, W), this rank's slice and half. batch_half: 0 unconditional, 1 text.
    group: the two ranks that hold the same slice in opposite halves, unconditional first.
    Returns (2, 4, h / N, W), unconditional first, same dtype, by one all_gather.
    Without it a rank guides by `uncond + scale * (text - uncond)` with a half that froze at the last warm-up step.
    """
    assert noise_pred_local.shape[0] == 1, f"one half of one picture is expected, not {tuple(noise_pred_local.shape)}"
    assert dist.get_world_size(group) == 2, "the group of a CFG repair is a pair"
    assert dist.get_rank(group) == batch_half, "the unconditional rank comes first in its pair"
    return gather(noise_pred_local[0], group)
