"""A step of a round: the own one is computed, the others are passed with the last prediction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor
from torch import distributed as dist

from otil_exp.config import ExperimentConfig
from otil_exp.exchange.forecast import forecast
from otil_exp.exchange.messages import Incoming, Messages, Outgoing, Parcel
from otil_exp.methods.step_reuse.config import StepReuseConfig
from otil_exp.rank_unet.alone import alone_parts
from otil_exp.rank_unet.assemblies import GatherHalves
from otil_exp.rank_unet.inputs import StepInputs, own_half
from otil_exp.rank_unet.kinds import ALIKE
from otil_exp.rank_unet.on_rank import LayersOnRank
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


def turns(steps: Sequence[Step], ranks: int) -> tuple[int | None, ...]:
    """Whose turn each step is; None for synchronous ones, which all compute. A round ends where one of these begins."""
    found: list[int | None] = []
    for step in steps:
        before = found[-1] if found else None
        found.append(None if step.synchronous else 0 if before is None else (before + 1) % ranks)
    return tuple(found)


class StepReuseOnRank(LayersOnRank):
    """step_reuse: rank 0 of a half holds the latents that count, and gets the predictions of the others' turns."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, StepReuseConfig)
        layers, choice, undo = alone_parts(config.engine.name, ranks, unet, traffic)
        super().__init__(layers, choice, traffic, cut=own_half(ranks), kinds=ALIKE, undo=undo)
        self._order, self._ranks = config.preset.order, ranks
        self._gather = GatherHalves(ranks) if ranks.topology.split_batch else None
        self._messages = Messages(ranks.batch_group, ranks.device)

    def prepare(self, inputs: StepInputs) -> None:
        super().prepare(inputs)
        self._messages.meet()
        half = Parcel((tuple(self._cut(inputs, 0).sample.shape),), inputs.sample.dtype)
        for turn in range(1, self._ranks.topology.slices):
            self._messages.register(
                turn, half, sends=self._ranks.slice_index == turn, receives=self._ranks.slice_index == 0
            )

    def begin(self, steps: Sequence[Step]) -> None:
        self._turns = turns(steps, self._ranks.topology.slices)
        self._made: list[int] = []
        self._predictions: list[Tensor] = []

    def predict(self, inputs: StepInputs, step: Step) -> Tensor:
        turn, own = self._turns[step.index], self._ranks.slice_index
        if turn is None or turn == own == 0:
            return self._remember(self._whole(self.run_layers(inputs, step), step), step)
        if own == 0:
            ((local,),) = self._messages.swap([], [Incoming(turn, turn)])
            return self._remember(self._whole(local, step), step)
        if turn == own:
            self._messages.swap([Outgoing(turn, 0, (self.run_layers(inputs, step),))], [])
        return forecast(self._predictions, self._made, step.index, self._order, 1.0).clone()

    def exchange(self, latents: Tensor, step: Step) -> Tensor:
        """At the end of a round all get rank 0's latent, and the predictions to begin the next one with."""
        after = step.index + 1
        ends = after == len(self._turns) or self._turns[after] in (None, 0)
        if self._turns[step.index] is None or not ends:
            return latents
        latents = latents.contiguous()
        dist.broadcast(latents, src=0)
        if after < len(self._turns) and self._turns[after] == 0:
            self._hand_out(step.index)
        return latents

    def finish(self) -> None:
        super().finish()
        self._messages.finish()

    def _whole(self, local: Tensor, step: Step) -> Tensor:
        return local.clone() if self._gather is None else self._gather(local, step)

    def _remember(self, prediction: Tensor, step: Step) -> Tensor:
        keep = self._order + 1
        self._predictions = [*self._predictions, prediction][-keep:]
        self._made = [*self._made, step.index][-keep:]
        return prediction

    def _hand_out(self, last: int) -> None:
        """Rank 0's newest predictions for all: a full round has left it as many as are needed."""
        number = self._order + 1
        if self._ranks.rank == 0:
            newest = torch.stack(self._predictions)
        else:
            newest = self._predictions[-1].new_empty((number, *self._predictions[-1].shape))
        dist.broadcast(newest, src=0)
        self._predictions = list(newest.unbind(0))
        self._made = list(range(last + 1 - number, last + 1))


build = StepReuseOnRank
