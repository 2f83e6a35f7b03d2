"""What methods have in common whose ranks compute stages of a UNet: segments, messages and phases put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor
from torch import distributed as dist

from otil_exp.choices import Engine, GnSync
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange.forecast import FittedGain, extrapolated_change, forecast
from otil_exp.exchange.messages import Incoming, Messages, Outgoing, Parcel
from otil_exp.exchange.timetable import KNOWN, PREDICTION, Compute, Message, Swap
from otil_exp.methods.staged_rules import LayOut, stages_in_words
from otil_exp.methods.staged_text import TextOfPicture
from otil_exp.rank_unet.assemblies import GatherHalves
from otil_exp.rank_unet.compiled_call import check_same, compiled_call
from otil_exp.rank_unet.engine_choice import EngineChoice, choose_engine, forgets_graphs
from otil_exp.rank_unet.inputs import StepInputs, on_device, own_half
from otil_exp.rank_unet.on_rank import OnRank
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import slice_layers
from otil_exp.schedule import Step
from otil_exp.stages.engine import SegmentEngine
from otil_exp.stages.parts import ADDED, SegmentCall, keep_only
from otil_exp.stages.tape import Unit
from otil_exp.stages.text import kept_outputs, take_projections
from otil_exp.stages.wiring import Segment, Wire, known_states, wires
from otil_exp.topology import RankContext


def segment_engine(unet: UNet2DConditionModel, calls: dict[int, SegmentCall], choice: EngineChoice) -> SegmentEngine:
    """The engine that was chosen, for segments of a UNet, which is changed in place where they are compiled."""
    record = CudaGraphRecorder() if choice.captured else None
    if not choice.compiled:
        return SegmentEngine(calls, record=record)
    unet.requires_grad_(False).to(memory_format=torch.channels_last)
    return SegmentEngine(
        calls,
        compiles=_compiled_segment,
        record=record,
    )


def _compiled_segment(segment: SegmentCall, *inputs: Tensor) -> Callable[..., tuple[Tensor, ...]]:
    call = partial(compiled_call(SegmentCall.forward, segment, *inputs), segment)
    for found, called in zip(call(*inputs), segment(*inputs), strict=True):
        check_same(found, called)
    return call


class StagesOnRank(OnRank):
    """One stage of a UNet cut by depth, on the ranks of a half of the batch.

    Stage 0, the outermost, holds the latents that count: it predicts, and the others get its last latent (their own
    ones are not computed from predictions). `lay_out` says what a stage does in which step.
    """

    def __init__(
        self,
        unet: UNet2DConditionModel,
        ranks: RankContext,
        engine: Engine,
        *,
        units: Sequence[Unit],
        segments: Sequence[Segment],
        lay_out: LayOut,
        order: int = 0,
        gain: Callable[[int], float] | None = None,
        fitted_at: int | None = None,
    ) -> None:
        """order, gain: of the forecast of a state; gain by its age. fitted_at: the age at which the gain is fitted on
        synchronous steps, None for the gain given. The UNet, wherever it is, loses all layers that
        this rank does not need; the others go to the rank's device."""
        self.unet, self.ranks = unet, ranks
        self.stage = ranks.slice_index
        self._units, self._segments, self._lay_out = units, segments, lay_out
        inner_stages = 1 + max(one.stage for one in segments)
        stages = [rank if rank < inner_stages else 0 for rank in range(ranks.topology.slices)]  # a second outer stage
        choice = choose_engine(engine, ranks, exchanges_in_layers=False)
        self.runs_as = f"{choice.sentence}; {stages_in_words(units, segments, lay_out)}"
        self.captured = choice.captured
        self._undo = forgets_graphs() if choice.compiled else None
        if choice.compiled:  # the layers that every compiled method has: projections merged, channels last
            slice_layers(unet, Slices(index=0, count=1, group=None, device=ranks.device), GnSync.off)
        projections = take_projections(unet)
        by_stage = [
            {i: SegmentCall(unet, units, one) for i, one in enumerate(segments) if one.stage == stage}
            for stage in stages
        ]
        self._text = TextOfPicture(projections, [kept_outputs(its.values()) for its in by_stage], ranks)
        calls = by_stage[self.stage]
        keep_only(unet, list(calls.values()))
        unet.to(ranks.device)  # not before: the device never holds more than this rank's stage
        self._calls, self._engine = calls, segment_engine(unet, calls, choice)
        self._half = own_half(ranks)
        self._gather = GatherHalves(ranks) if ranks.topology.split_batch else None
        self._order, self._gain = order, gain or (lambda age: 1.0)
        self._fitted = None if fitted_at is None else FittedGain(self._gain(fitted_at), ranks.device)
        self._fitted_at = fitted_at or 0
        self._kept = max(KNOWN, (order + 1) * self._fitted_at) + 1  # states of a kind
        self._messages = Messages(ranks.batch_group, ranks.device, depth=self._kept)
        self._into = {i: [one for one in wires(units, segments) if one.target == i] for i in calls}
        self._outers = {0, ranks.topology.slices - 1} if ranks.topology.slices > inner_stages else {0}
        self._begin_picture()

    # A picture

    def begin(self, steps: Sequence[Step]) -> None:
        self._phases = self._lay_out(steps)
        self._steps = tuple(steps)
        self._begin_picture()

    def predict(self, inputs: StepInputs, step: Step) -> Tensor:
        """Stage 0: the prediction. Others: zeros, as nothing is made of their latents."""
        own = self._half(inputs, step.counter)
        if step.index == 0:
            self._text.hand_out(own.encoder_hidden_states)
        for operation in self._phases[step.index][self.stage]:
            if isinstance(operation, Compute):
                self._run(operation, own, step)
            else:
                self._swap(operation)
        if self.stage not in self._outers:
            return torch.zeros_like(inputs.sample)
        local = self._predictions.pop(step.index)
        return local.clone() if self._gather is None else self._gather(local, step)

    def exchange(self, latents: Tensor, step: Step) -> Tensor:
        """After the last step all ranks get the latent of rank 0, the one that was computed."""
        if step.index + 1 == len(self._steps):
            latents = latents.contiguous()
            dist.broadcast(latents, src=0)
        return latents

    def finish(self) -> None:
        self._messages.finish()
        self._text.finish()

    def close(self) -> None:
        self._engine.close()
        if self._undo is not None:
            self._undo.close()

    # Getting ready

    def prepare(self, inputs: StepInputs) -> None:
        """Buffers for all that crosses, and each segment's graph, on inputs of the right shapes."""
        self._messages.meet()
        own = self._half(inputs, 0).static()
        self._text.prepare(own.encoder_hidden_states)
        batch, dtype, device = len(own.sample), own.sample.dtype, own.sample.device
        for parcel, message in self._kinds(batch, dtype):
            self._messages.register(
                _kind(message),
                parcel,
                sends=message.giver == self.stage,
                receives=message.taker == self.stage,
            )
        skips: dict[int, Tensor] = {}
        for index, call in self._calls.items():
            state = self._example_state(index, batch, dtype, device, own)
            for unit in known_states(self._units, self._segments, index):
                skips.setdefault(unit, torch.zeros(self._shape(unit, batch), dtype=dtype, device=device))
            missing = [unit for unit in call.takes if unit not in skips]
            skips.update({unit: torch.zeros(self._shape(unit, batch), dtype=dtype, device=device) for unit in missing})
            results = self._engine.prepare(index, [*_told(own), *state, *(skips[unit] for unit in call.takes)])
            skips.update(zip(call.leaves, results[len(results) - len(call.leaves) :], strict=True))

    def _kinds(self, batch: int, dtype: torch.dtype) -> list[tuple[Parcel, Message]]:
        """All kinds of messages that this stage gives or takes."""
        found = []
        for wire in wires(self._units, self._segments):
            giver, taker = self._segments[wire.source].stage, self._segments[wire.target].stage
            takers = self._outers if wire.target == len(self._segments) - 1 else {taker}
            parcel = Parcel(self._wire_shapes(wire, batch), dtype)
            found += [(parcel, Message(wire.source, wire.target, giver, one, 0)) for one in takers]
        prediction = Parcel((self._shape(len(self._units) - 1, batch),), dtype)
        for giver, taker in permutations(self._outers, 2):
            found.append((prediction, Message(PREDICTION, PREDICTION, giver, taker, 0)))
        return [one for one in found if self.stage in (one[1].giver, one[1].taker)]

    def _wire_shapes(self, wire: Wire, batch: int) -> tuple[tuple[int, ...], ...]:
        state = self._state_shapes(wire.target, batch) if wire.state else ()
        return (*state, *(self._shape(unit, batch) for unit in wire.skips))

    def _state_shapes(self, segment: int, batch: int) -> tuple[tuple[int, ...], ...]:
        """Shapes of the state at which a segment begins: tokens and residual inside a transformer."""
        unit = self._units[self._segments[segment].start - 1]
        shape = self._shape(self._segments[segment].start - 1, batch)
        return ((batch, unit.height * unit.width, unit.channels), shape) if unit.inside else (shape,)

    def _shape(self, unit: int, batch: int) -> tuple[int, ...]:
        one = self._units[unit]
        return (batch, one.channels, one.height, one.width)

    def _example_state(
        self, index: int, batch: int, dtype: torch.dtype, device: torch.device, own: StepInputs
    ) -> tuple[Tensor, ...]:
        if index == 0:
            return (own.sample,)
        return tuple(torch.zeros(shape, dtype=dtype, device=device) for shape in self._state_shapes(index, batch))

    # One operation

    def _begin_picture(self) -> None:
        self._arrived: dict[tuple[int, int], dict[int, tuple[Tensor, ...]]] = {}
        self._skips: dict[int, Tensor] = {}
        self._left: dict[int, tuple[Tensor, ...]] = {}
        self._predictions: dict[int, Tensor] = {}
        if self._fitted is not None:
            self._fitted.forget()

    def _run(self, run: Compute, own: StepInputs, step: Step) -> None:
        call = self._calls[run.segment]
        state = (own.sample,) if run.segment == 0 else self._state(run)
        start = self._segments[run.segment].start
        if start and self._units[start - 1].pushes:
            self._skips[start - 1] = state[0]
        for wire in self._into[run.segment]:
            if wire.skips:
                newest = list(self._arrived[wire.source, wire.target].values())[-1]
                self._skips.update(zip(wire.skips, newest[len(newest) - len(wire.skips) :], strict=True))
        if run.told != step.index:
            own = replace(own, timestep=on_device(self.timesteps()[run.told], own.sample.device))
        runs = self._engine.call_modules if self.calls_modules else self._engine.run
        results = runs(run.segment, [*_told(own), *state, *(self._skips[unit] for unit in call.takes)])
        states = len(results) - len(call.leaves)
        self._skips.update(zip(call.leaves, results[states:], strict=True))
        self._left[run.segment] = results[:states]
        if run.segment == len(self._segments) - 1:
            self._predictions[run.told] = results[0]

    def _swap(self, swap: Swap) -> None:
        gives = [Outgoing(_kind(one), one.taker, self._contents(one)) for one in swap.gives]
        came = self._messages.swap(gives, [Incoming(_kind(one), one.giver) for one in swap.takes])
        for message, tensors in zip(swap.takes, came, strict=True):
            if message.source == PREDICTION:
                self._predictions[message.made] = tensors[0]
                continue
            arrived = self._arrived.setdefault((message.source, message.target), {})
            arrived[message.made] = tensors
            if len(arrived) > self._kept:
                del arrived[next(iter(arrived))]

    def _contents(self, message: Message) -> tuple[Tensor, ...]:
        """What a message carries: the state that its segment has left, and skips."""
        if message.source == PREDICTION:
            return (self._predictions[message.made],)
        (wire,) = [
            one
            for one in wires(self._units, self._segments)
            if (one.source, one.target) == (message.source, message.target)
        ]
        state = self._left[wire.source] if wire.state else ()
        return (*state, *(self._skips[unit] for unit in wire.skips))

    def _state(self, run: Compute) -> tuple[Tensor, ...]:
        """The state at which a segment begins: what arrived, or on the way up its forecast."""
        known = self._arrived[run.segment - 1, run.segment]
        tensors = len(self._state_shapes(run.segment, 1))
        made = [one for one in run.state if one in known]
        last = known[made[-1]][:tensors]
        if self._order == 0 or run.segment <= len(self._segments) // 2:
            return last
        if made[-1] == run.latent:
            self._fit([values[:tensors] for values in known.values()], list(known), run.latent)
            return last
        gain = self._gain(run.latent - made[-1]) if self._fitted is None else self._fitted.value
        return tuple(
            forecast([known[one][index] for one in made], made, run.latent, self._order, gain).to(last[index].dtype)
            for index in range(tensors)
        )

    def _fit(self, values: list[tuple[Tensor, ...]], made: list[int], now: int) -> None:
        """Hold what a forecast at the age in question would have been against what it is."""
        points = [now - self._fitted_at * back for back in range(self._order + 1, 0, -1)]
        if self._fitted is None or not set(points) <= set(made):
            return
        for index in range(len(values[0])):
            past = [values[made.index(one)][index] for one in points]
            change = extrapolated_change(past, points, now, self._order)
            assert change is not None
            self._fitted.see(values[made.index(now)][index], past[-1], change)


def _kind(message: Message) -> tuple[int, int, int, int]:
    return message.source, message.target, message.giver, message.taker


def _told(own: StepInputs) -> tuple[Tensor, ...]:
    """What every segment is told about a step."""
    # Strides are part of what a graph is compiled for, and those of a () timestep would be others than a (b,) one's.
    timestep = own.timestep.to(torch.float32).expand(len(own.sample)).contiguous()
    added = [own.added_cond_kwargs[name] for name in ADDED if name in own.added_cond_kwargs]
    return timestep, own.encoder_hidden_states, *added
