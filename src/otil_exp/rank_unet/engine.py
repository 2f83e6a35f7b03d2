"""How a step of the UNet is executed: called, or replayed from a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from otil_exp.cuda_graphs import Captured, Record
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.traffic import Traffic, TrafficCounter

Call = Callable[[StepInputs], torch.Tensor]
"""Runs the UNet of this rank."""


class StepEngine(Protocol):
    """Runs the UNet of this rank; steps of one kind do the same operations on the same shapes."""

    def capture(self, kind: int, call: Call, inputs: StepInputs) -> None:
        """Get ready to run steps of a kind; `call` leaves no exchange under way."""

    def run(self, kind: int, call: Call, inputs: StepInputs) -> torch.Tensor:
        """Run a step. The result is not overwritten by later steps."""


class Eager:
    """Calls the UNet."""

    def capture(self, kind: int, call: Call, inputs: StepInputs) -> None:
        """Nothing to get ready."""

    def run(self, kind: int, call: Call, inputs: StepInputs) -> torch.Tensor:
        return call(inputs)


class FixedPlaces:
    """Calls the UNet on inputs copied into place: what is compiled for them once serves all steps."""

    def __init__(self) -> None:
        self._places: dict[int, StepInputs] = {}

    def capture(self, kind: int, call: Call, inputs: StepInputs) -> None:
        self._places[kind] = inputs.static()
        call(self._places[kind])

    def run(self, kind: int, call: Call, inputs: StepInputs) -> torch.Tensor:
        self._places[kind].overwrite(inputs)
        return call(self._places[kind])


@dataclass(frozen=True)
class _Graph:
    inputs: StepInputs
    captured: Captured[torch.Tensor]
    traffic: Traffic


class CudaGraphs:
    """Captures the UNet once for each kind of step, and replays it on inputs copied into place."""

    def __init__(self, traffic: TrafficCounter, record: Record) -> None:
        """traffic: told of a graph's collectives at each replay, which calls no Python. record: makes a graph."""
        self._traffic = traffic
        self._record = record
        self._graphs: dict[int, _Graph] = {}

    def capture(self, kind: int, call: Call, inputs: StepInputs) -> None:
        static = inputs.static()
        with self._traffic.installed(), self._traffic.recording() as sent:
            captured = self._record(lambda: call(static))
        self._graphs[kind] = _Graph(static, captured, sent)

    def run(self, kind: int, call: Call, inputs: StepInputs) -> torch.Tensor:
        graph = self._graphs[kind]
        graph.inputs.overwrite(inputs)
        graph.captured.replay()
        self._traffic.add(graph.traffic)
        return graph.captured.output.clone()
