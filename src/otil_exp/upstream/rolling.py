"""Layers that take turns: in every step a part of them sends its context, to be used a step later."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import BaseModule, PatchParallelismCommManager

SILENT = "no_sync"


class RollingRenewal:
    """Says to layers whose turn it is. A part is of neighbours in the order of the layers, so that it is one piece of
    their buffer and one collective; parts are of about equal bytes, whatever the layers' sizes."""

    def __init__(
        self, layers: Sequence[BaseModule], manager: PatchParallelismCommManager, *, mode: str, period: int
    ) -> None:
        """layers: each with a config of its own, registered with the manager. mode: of those whose turn it is."""
        self._mode, self._manager = mode, manager
        spans = list(zip(manager.starts, manager.ends, strict=True))
        turns = [(start + end) * period // (2 * manager.numel) for start, end in spans]
        self.parts = [[layer for layer in layers if turns[layer.idx] == turn] for turn in range(period)]
        manager.distri_config = own_config(manager)

    def set_step(self, steps_after_warmup: int) -> None:
        """steps_after_warmup: 0 for the first one after it; negative in a synchronous step."""
        turn = steps_after_warmup % len(self.parts)
        for number, part in enumerate(self.parts):
            for layer in part:
                layer.distri_config.mode = self._mode if number == turn else SILENT
        # upstream's queue is sent when so many tensors are in it
        self._manager.distri_config.comm_checkpoint = len(self.parts[turn])


def own_config(owner: Any) -> RankConfig:
    """A copy of the config of a layer or a manager, to change."""
    config: RankConfig = copy(owner.distri_config)
    return config
