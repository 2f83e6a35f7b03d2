"""A UNet compiled: one graph, and two more for each shape of its transformer blocks."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn

from otil_exp.rank_unet.compiled_call import Call, check_same, compiled_call
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.sliced import blocks
from otil_exp.rank_unet.sliced.compile_turn import compile_turn, compiled_ahead
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter


class Graph:
    """Calls a UNet that is compiled by the first call for each shape of the sample.

    Later calls must have the same strides and types, which the engines see to by copying inputs to fixed places. There
    is one shape, but for a naive_patch that cuts rows and columns in turn.
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
        self._blocks = blocks.compile_apart(unet, form)
        self._calls: dict[torch.Size, Call] = {}
        self._sent: dict[torch.Size, Traffic] = {}

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        if inputs.sample.shape not in self._sent:
            self._compile(inputs)
        self._traffic.add(self._sent[inputs.sample.shape])
        output: torch.Tensor = self._calls[inputs.sample.shape](self._unet, inputs)
        return output

    def _compile(self, inputs: StepInputs) -> None:
        with self._traffic.installed(), self._traffic.recording() as sent:
            called = predict(self._unet, inputs)
        room = torch._dynamo.config.patch(recompile_limit=blocks.GRAPHS)
        found = self._ahead and compiled_ahead(self._ranks)
        turn = nullcontext() if found else compile_turn(self._ranks, communicates=self._communicates)
        with room, turn:
            call = compiled_call(predict, self._unet, inputs, depends_on=self._blocks)
            check_same(call(self._unet, inputs), called)
        self._calls[inputs.sample.shape], self._sent[inputs.sample.shape] = call, sent
