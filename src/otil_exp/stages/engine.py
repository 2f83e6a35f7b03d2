"""How the segments of a stage are executed: called, compiled, or replayed from CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from otil_exp.cuda_graphs import Captured, Record
from otil_exp.stages.parts import SegmentCall

Call = Callable[..., tuple[Tensor, ...]]
"""What a segment gives for its inputs."""


@dataclass(frozen=True)
class _Recorded:
    """A segment's graph, and the tensors it reads."""

    places: tuple[Tensor, ...]
    captured: Captured[tuple[Tensor, ...]]


class SegmentEngine:
    """Runs the segments of one stage, each with inputs of one shape.

    A segment's graph reads tensors that stay where they are (buffers, or what another segment's graph leaves) in place,
    and gets others copied in; its results are overwritten by its next run.
    """

    def __init__(
        self,
        calls: dict[int, SegmentCall],
        *,
        compiles: Callable[..., Call] | None = None,
        record: Record | None = None,
    ) -> None:
        """calls: by segment. compiles: makes a compiled call of one for inputs like those that follow; None calls it as
        it is. record: makes CUDA graphs; None replays nothing."""
        self._modules = dict(calls)
        self._compiles = compiles
        self._calls: dict[int, Call] = dict(calls)
        self._record = record
        self._recorded: dict[int, _Recorded] = {}

    def run(self, segment: int, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results of a segment."""
        if self._record is None:
            return self._calls[segment](*inputs)
        recorded = self._recorded[segment]
        for place, given in zip(recorded.places, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        recorded.captured.replay()
        return recorded.captured.output

    def call_modules(self, segment: int, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same by the modules themselves, neither compiled nor replayed."""
        results: tuple[Tensor, ...] = self._modules[segment](*inputs)
        return results

    def prepare(self, segment: int, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compile and record a segment for inputs of these shapes, after a call that lets libraries start up. What its
        graph reads are copies of them, but for results of other segments' graphs."""
        results = self.call_modules(segment, inputs)
        call: Call = self._modules[segment]
        if self._compiles is not None:  # after that call: modules make buffers at their first one, graphs none
            call = self._compiles(self._modules[segment], *inputs)
            results = call(*inputs)
        self._calls[segment] = call
        if self._record is None:
            return results
        left = {tensor.data_ptr() for one in self._recorded.values() for tensor in one.captured.output}
        places = tuple(one if one.data_ptr() in left else one.clone() for one in inputs)
        captured = self._record(lambda: call(*places))
        self._recorded[segment] = _Recorded(places, captured)
        return captured.output

    def close(self) -> None:
        """Drop the graphs."""
        self._recorded.clear()
        self._calls.clear()
        self._modules.clear()
