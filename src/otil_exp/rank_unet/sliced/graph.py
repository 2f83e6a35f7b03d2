"""A UNet compiled: one graph, and two more for each shape of its transformer blocks."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import torch
from torch import nn

from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.kernel_choice import best_kernels
from otil_exp.rank_unet.sliced import blocks
from otil_exp.rank_unet.sliced.compile_turn import compile_turn, compiled_ahead
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter

BACKEND = "inductor"
"""What torch.compile makes of a graph; tests, which look at graphs and not at speed, use one that compiles no C++."""


class Graph:
    """Calls a UNet through torch.compile, which has all its graphs after the first call for each shape of the sample.

    Later calls must have the same strides and types (a graph for others would be compiled, which the engines avoid by
    copying inputs to fixed places). There is one shape, but for a naive_patch that cuts rows and columns in turn.
    Collectives inside are counted at each call, though they call no Python.
    """

    def __init__(
        self,
        unet: nn.Module,
        ranks: RankContext,
        traffic: TrafficCounter,
        *,
        form: str,
        communicates: bool,
        ahead: bool = False,
    ) -> None:
        """form: of the step, in a word. communicates: whether the UNet has collectives inside, so that no rank can run
        it alone. ahead: whether another process may be compiling it (otil_exp.compile_ahead)."""
        self._unet, self._ranks, self._traffic = unet, ranks, traffic
        self._communicates, self._ahead = communicates, ahead
        compiled = partial(torch.compile, fullgraph=True, dynamic=False, backend=BACKEND)
        blocks.compile_apart(unet, form, compiled)
        self._compiled = compiled(unet)
        self._sent: dict[torch.Size, Traffic] = {}

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        if inputs.sample.shape not in self._sent:
            self._compile(inputs)
        self._traffic.add(self._sent[inputs.sample.shape])
        return predict(self._compiled, inputs)

    def _compile(self, inputs: StepInputs) -> None:
        with self._traffic.installed(), self._traffic.recording() as sent:
            predict(self._unet, inputs)
        self._sent[inputs.sample.shape] = sent
        room = torch._dynamo.config.patch(recompile_limit=blocks.GRAPHS)
        found = self._ahead and compiled_ahead(self._ranks)
        turn = nullcontext() if found else compile_turn(self._ranks, communicates=self._communicates)
        with best_kernels(), room, turn:
            predict(self._compiled, inputs)
