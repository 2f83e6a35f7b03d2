"""A UNet compiled as one graph."""

from __future__ import annotations

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter
from otil_exp.upstream.inputs import StepInputs, predict

BACKEND = "inductor"
"""What torch.compile makes of a graph; tests, which look at graphs and not at speed, use one that compiles no C++."""

ATTENTION = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Kernels of attention, best first; a graph keeps what was chosen while it was compiled."""


class Graph:
    """Calls a UNet through torch.compile: whole, for one set of shapes, at the first call.

    Later calls must have the same shapes, strides and types (a graph for others would be compiled, which the engines
    avoid by copying inputs to fixed places). Collectives inside are counted at each call, though they call no Python.
    """

    def __init__(self, unet: nn.Module, ranks: RankContext, traffic: TrafficCounter, *, communicates: bool) -> None:
        """communicates: whether the UNet has collectives inside, so that no rank can run it alone."""
        self._unet, self._ranks, self._traffic, self._communicates = unet, ranks, traffic, communicates
        self._compiled = torch.compile(unet, fullgraph=True, dynamic=False, backend=BACKEND)
        self._sent: Traffic | None = None

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        if self._sent is None:
            self._compile(inputs)
            assert self._sent is not None
        self._traffic.add(self._sent)
        return predict(self._compiled, inputs)

    def _compile(self, inputs: StepInputs) -> None:
        with self._traffic.installed(), self._traffic.recording() as self._sent:
            predict(self._unet, inputs)
        with sdpa_kernel(ATTENTION, set_priority=True):
            self._compile_alone_or_in_turn(inputs)

    def _compile_alone_or_in_turn(self, inputs: StepInputs) -> None:
        shares_cores = self._ranks.device.type == "cpu" and self._ranks.topology.world_size > 1
        if not shares_cores or self._communicates:
            predict(self._compiled, inputs)
            return
        # One rank compiles, the others find its kernels in the cache: their graph is the same.
        if not self._ranks.is_main:
            dist.barrier()
        predict(self._compiled, inputs)
        if self._ranks.is_main:
            dist.barrier()
