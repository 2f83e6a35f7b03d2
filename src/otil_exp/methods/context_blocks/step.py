"""A step of otil_context: the own rows through layers that hold the others' context, then k blocks of it are sent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import GnSync
from otil_exp.config import ExperimentConfig
from otil_exp.exchange import ContextExchange, Selection
from otil_exp.methods.codec_scope import codec_of
from otil_exp.methods.context_blocks.config import ContextBlocksConfig
from otil_exp.methods.context_blocks.rules import read_after
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.methods.patch_step import PatchOnRank
from otil_exp.methods.selection_rules import grid_of
from otil_exp.rank_unet.assemblies import GatherSlices
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.kinds import synchronous_or_silent
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.layers import Layers


class ContextBlocksOnRank(PatchOnRank):
    """The layers exchange everything in a synchronous step; after any other, an exchange does for all of them."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, ContextBlocksConfig)
        # Layers whose context is exchanged for them are those of a mode that is one step late.
        mode = "sync_gn" if gn_sync_of(config.preset.gn_sync) is GnSync.exact else "separate_gn"
        kinds = synchronous_or_silent(config.warmup_steps)
        super().__init__(
            config, ranks, unet, traffic, mode=mode, kinds=kinds, holds_context=True, order=config.preset.order
        )
        self._config, self._ranks = config, ranks
        self._gather = GatherSlices(ranks)
        self._read_after = read_after(config.preset.context)
        self._context: ContextExchange | None = None
        self._steps: Sequence[Step] = ()

    def registered(self) -> None:
        assert isinstance(self._layers, Layers)
        self._context = _context_exchange(self._config, self._ranks, self._layers)

    def begin(self, steps: Sequence[Step]) -> None:
        assert self._context is not None, "prepare comes first"
        self._steps = steps
        self._context.begin()

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        assert self._context is not None, "prepare comes first"
        self._context.before_step(step.synchronous)
        local = self.run_layers(inputs, step)
        self._context.after_step(inputs.sample, step.synchronous, is_read=self._is_read(step))
        return self._gather(local, step)

    def finish(self) -> None:
        if self._context is not None:
            self._context.receive()
        super().finish()

    def _is_read(self, step: Step) -> bool:
        """Whether a step reads what is sent after this one before a synchronous step renews everything."""
        until = self._steps[step.index + 1 : step.index + 1 + self._read_after]
        return len(until) == self._read_after and not any(later.synchronous for later in until)


def _context_exchange(config: ExperimentConfig, ranks: RankContext, layers: Layers) -> ContextExchange:
    assert isinstance(config.preset, ContextBlocksConfig)
    context = config.preset.context
    selection = Selection(
        k=int(config.k.budget),
        score=context.score,
        against=context.against,
        polling=context.polling,
        score_on=context.score_on,
        halos=context.halos,
    )
    return ContextExchange(
        grid_of(context, config),
        *layers.context,
        selection=selection,
        slice_index=ranks.slice_index,
        slices=ranks.topology.slices,
        overlap=context.overlap,
        every=context.every,
        codec=codec_of(config),
        group=ranks.batch_group,
    )


build = ContextBlocksOnRank
