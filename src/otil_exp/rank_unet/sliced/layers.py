"""The UNet of a slice in its two forms, synchronous and silent, each compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import distributed as dist
from torch import nn

from otil_exp.choices import GnSync
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.kinds import FIRST
from otil_exp.rank_unet.sliced.blocks import group_blocks
from otil_exp.rank_unet.sliced.graph import Graph
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.statistics_exchange import StatisticsExchange
from otil_exp.rank_unet.sliced.tree import silent_copy, slice_layers
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter

Run = Callable[[StepInputs], torch.Tensor]


class SlicedLayers:
    """Layers that exchange everything or nothing; changes the UNet in place.

    With one slice there is one form, which never exchanges anything.
    """

    def __init__(
        self,
        unet: UNet2DConditionModel,
        ranks: RankContext,
        traffic: TrafficCounter,
        *,
        together: bool,
        gn_sync: GnSync,
        last_synchronous: float,
    ) -> None:
        """together: whether the slices are parts of one picture, or each a picture of its own.
        last_synchronous: index of the last synchronous step.
        """
        self.unet = unet.requires_grad_(False)
        self._ranks, self._traffic = ranks, traffic
        self._gn_sync, self._last_synchronous = gn_sync, last_synchronous
        index, count = (ranks.slice_index, ranks.topology.slices) if together else (0, 1)
        slices = Slices(index=index, count=count, group=ranks.batch_group, device=ranks.device)
        self._slices = slices.count
        slice_layers(unet, slices, gn_sync)
        group_blocks(unet)
        # The layout that half precision kernels of cuDNN want; Inductor would convert the weights at every call.
        unet.to(memory_format=torch.channels_last)
        self._statistics: StatisticsExchange | None = None
        self._synchronous = False
        self._forms: dict[bool, Run] = {}
        self._modules: dict[bool, nn.Module] = {True: unet, False: unet}
        if self._slices == 1:
            self._forms[False] = self._compiled(unet, "alone", communicates=False)

    @property
    def compiles_both_forms(self) -> bool:
        """Whether there are two forms, and graphs of either."""
        return self._slices > 1 and self._compiles(communicates=True)

    def set_step(self, step: Step) -> None:
        """Say which step comes next; what it needs of the one before has arrived then."""
        self._synchronous = self._slices > 1 and step.counter <= self._last_synchronous
        self.wait()

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        """Run the UNet of the step that was set."""
        return self._forms[self._synchronous](inputs)

    def call_modules(self, inputs: StepInputs) -> torch.Tensor:
        """The same without the graph."""
        return predict(self._modules[self._synchronous], inputs)

    def register(self, call: Callable[[], Any]) -> None:
        """Make the context and the graphs: `call` runs the UNet once. All ranks must call it."""
        if self._slices == 1:
            return
        self._forms = {True: lambda inputs: predict(self.unet, inputs)}
        self.set_step(FIRST)
        call()
        if self._gn_sync is GnSync.fused:
            norms = [module for module in self.unet.modules() if isinstance(module, SlicedGroupNorm)]
            self._statistics = StatisticsExchange(norms, self._slices, self._ranks.batch_group)
        silent = self._modules[False] = silent_copy(self.unet)
        self._forms = {
            True: self._compiled(self.unet, "synchronous", communicates=True),
            False: self._compiled(silent, "silent", communicates=self._gn_sync is GnSync.exact, ahead=True),
        }

    def after_step(self) -> None:
        """What the layers leave for the next step is on its way."""
        if self._statistics is not None and not self._synchronous:
            self._statistics.send()

    def wait(self) -> None:
        """Wait for the exchanges that are under way."""
        if self._statistics is not None:
            self._statistics.wait()

    def clear(self) -> None:
        """Leave nothing pending."""
        self.wait()

    def _compiled(self, unet: nn.Module, form: str, *, communicates: bool, ahead: bool = False) -> Run:
        if not self._compiles(communicates=communicates):
            return lambda inputs: predict(unet, inputs)
        return Graph(unet, self._ranks, self._traffic, form=form, communicates=communicates, ahead=ahead)

    def _compiles(self, *, communicates: bool) -> bool:
        """Not where several ranks have one GPU: a graph cannot hold collectives that the host runs."""
        return not (communicates and self._ranks.device.type == "cuda" and dist.get_backend() == "gloo")
