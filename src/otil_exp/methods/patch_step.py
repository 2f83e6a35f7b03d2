"""The layers of a rank that computes a slice of rows: distrifuser's, or the same as plain modules to compile."""

from __future__ import annotations

import math
from contextlib import ExitStack

from diffusers import UNet2DConditionModel

from otil_exp.choices import GnSync, GroupNormKind
from otil_exp.config import ExperimentConfig
from otil_exp.exchange import CodedContext
from otil_exp.methods.codec_scope import codec_of, codes_layers
from otil_exp.rank_unet.engine_choice import choose_engine, forgets_graphs
from otil_exp.rank_unet.inputs import own_half, own_rows_and_next
from otil_exp.rank_unet.kinds import ALIKE, StepKinds, first_apart
from otil_exp.rank_unet.on_rank import LayersOnRank
from otil_exp.rank_unet.sliced.layers import SlicedLayers
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.context import MakeCoded
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.layers import Layers
from otil_exp.upstream.patches import applied


class PatchOnRank(LayersOnRank):
    """A method whose layers know of the other slices."""

    def __init__(
        self,
        config: ExperimentConfig,
        ranks: RankContext,
        unet: UNet2DConditionModel,
        traffic: TrafficCounter,
        *,
        mode: str,
        kinds: StepKinds,
        gn_sync: GnSync = GnSync.off,
        holds_context: bool = False,
        order: int = 0,
        rolling: int = 0,
    ) -> None:
        """The UNet is changed in place.

        mode: what the layers exchange after warm-up, in distrifuser's words. kinds: which steps do the same.
        holds_context, rolling, order: see upstream.Layers. Compiled layers know the modes full_sync and no_sync: others
        come with another engine (Method.obstacle).
        """
        self._traffic = traffic
        choice = choose_engine(config.engine.name, ranks, exchanges_in_layers=True)
        if choice.compiled:
            assert mode in ("full_sync", "no_sync"), mode
            last = math.inf if mode == "full_sync" else config.warmup_steps
            sliced = SlicedLayers(unet, ranks, traffic, together=True, gn_sync=gn_sync, last_synchronous=last)
            kinds = ALIKE if mode == "full_sync" else kinds
            super().__init__(sliced, choice, traffic, cut=own_rows_and_next(ranks), kinds=kinds, undo=forgets_graphs())
            self.has_silent_form = mode == "no_sync" and sliced.compiles_both_forms
            return
        exact, coded = config.groupnorm is GroupNormKind.exact, codes_layers(config)
        with ExitStack() as undo:
            undo.enter_context(applied(*_patches(exact, coded, gn_sync)))
            layers = Layers(
                unet,
                _distri_config(config, ranks, mode),
                own_statistics=exact,
                fused_statistics=gn_sync is GnSync.fused,
                holds_context=holds_context,
                coded=_coded(config, ranks) if coded else None,
                rolling=rolling,
                order=order,
            )
            kinds = first_apart(kinds) if coded and mode != "full_sync" else kinds  # there, the first one is so already
            super().__init__(layers, choice, traffic, cut=own_half(ranks), kinds=kinds, undo=undo.pop_all())


def _distri_config(config: ExperimentConfig, ranks: RankContext, mode: str) -> RankConfig:
    return RankConfig(
        ranks,
        parallelism="patch",
        mode=mode,
        warmup_steps=config.warmup_steps,
        height=config.height,
        width=config.width,
        guidance=config.guidance_scale > 1,
    )


def _coded(config: ExperimentConfig, ranks: RankContext) -> MakeCoded:
    codec, index, group = codec_of(config), ranks.slice_index, ranks.batch_group
    return lambda held: CodedContext(codec, held, slice_index=index, group=group)


def _patches(exact: bool, coded: bool, gn_sync: GnSync) -> list[str]:
    """Names of the patches that layers of a slice need; repairs of crashes and of the race always."""
    wanted = {"exact_groupnorm": exact, "context_gather": coded, "gn_sync": gn_sync is GnSync.exact}
    return ["peft_flag", "comm_queue", *(name for name, is_wanted in wanted.items() if is_wanted)]
