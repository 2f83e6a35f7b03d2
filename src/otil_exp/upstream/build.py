"""From a method's settings to the UNet of a rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import Engine, GnSync, GroupNormKind, Parallelism, SplitScheme, StaleSums, SyncMode, TensorLayers
from otil_exp.config import VAE_FACTOR
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream.assemble import (
    AgreeOnMean,
    Assembly,
    Codec,
    GatherHalves,
    GatherSlices,
    KeepOwnSlice,
    Repair,
    whole,
)
from otil_exp.upstream.checks import check_method, check_sizes
from otil_exp.upstream.choice import choose_engine
from otil_exp.upstream.context import MakeContextExchange
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.inputs import own_half, own_part, own_rows_and_next, split_dim
from otil_exp.upstream.kinds import ALIKE, step_kinds, synchronous_or_silent
from otil_exp.upstream.layers import Layers, StepLayers
from otil_exp.upstream.patches import applied
from otil_exp.upstream.sliced import SlicedLayers
from otil_exp.upstream.unet import RankUNet


def build_unet(
    unet: UNet2DConditionModel,
    ranks: RankContext,
    *,
    parallelism: Parallelism,
    sync_mode: SyncMode | None = None,
    split_scheme: SplitScheme | None = None,
    noise_gather: bool = True,
    cfg_repair: bool = False,
    gn_sync: GnSync = GnSync.off,
    groupnorm: GroupNormKind = GroupNormKind.exact,
    stale: StaleSums | None = None,
    stale_layers: Sequence[TensorLayers] = (),
    make_context: MakeContextExchange | None = None,
    codec: Codec | None = None,
    warmup_steps: int,
    height: int,
    width: int,
    guidance: bool,
    engine: Engine = Engine.eager,
    traffic: TrafficCounter,
    repair: Repair | None = None,
) -> RankUNet:
    """Spread a UNet over the ranks of a run.

    unet: on the rank's device, whole, the same on all ranks; it is changed in place. height, width: pixels. guidance:
    whether the batch holds an unconditional and a conditional half. repair: what cfg_repair calls. make_context: who
    exchanges layer context block by block in a step of sync_mode=no_sync. codec: for the gathered noise prediction. The
    other settings are those of otil_exp.config. Patches of distrifuser act on the whole process until close().
    Raises ValueError for settings that do not go together; most are refused earlier, when the config is composed.
    """
    if parallelism is not Parallelism.patch:
        sync_mode, noise_gather, gn_sync, make_context = None, True, GnSync.off, None
    if parallelism is not Parallelism.naive_patch:
        split_scheme = None
    if parallelism is not Parallelism.tensor or ranks.topology.slices == 1 or not stale_layers:
        stale = None
    check_method(ranks, parallelism, sync_mode, split_scheme, gn_sync, guidance)
    check_sizes(unet, ranks, parallelism, split_scheme, height, width)
    if noise_gather or ranks.topology.slices == 1:
        assembly = _gathering(ranks, parallelism, split_scheme, codec)
        if stale is StaleSums.peers:
            assembly = AgreeOnMean(ranks, assembly)
    else:
        assembly = KeepOwnSlice(ranks, _repair(ranks, cfg_repair, repair))
    exact = parallelism is Parallelism.patch and groupnorm is GroupNormKind.exact
    config = RankConfig(
        ranks,
        parallelism=parallelism.value,
        mode=_mode(sync_mode, gn_sync, make_context is not None).value,
        warmup_steps=warmup_steps,
        height=height,
        width=width,
        guidance=guidance,
    )
    choice = choose_engine(engine, ranks, parallelism, sync_mode, groupnorm, blockwise=make_context is not None)
    cut = own_half(ranks) if split_scheme is None else own_part(ranks, split_scheme)
    kinds = step_kinds(parallelism, ranks.topology.slices, warmup_steps, split_scheme, stale is not None)
    with ExitStack() as undo:
        undo.enter_context(applied(*_patches(exact, gn_sync)))
        if choice.compiled:
            # A process that performs many cells would come to the number of graphs that PyTorch keeps for one function.
            undo.callback(torch.compiler.reset)
            together = parallelism is Parallelism.patch
            last = math.inf if sync_mode is SyncMode.full_sync else warmup_steps
            layers: StepLayers = SlicedLayers(
                unet, ranks, traffic, together=together, gn_sync=gn_sync, last_synchronous=last
            )
            if together:
                cut = own_rows_and_next(ranks)
                kinds = synchronous_or_silent(warmup_steps) if last == warmup_steps else ALIKE
        else:
            layers = Layers(
                unet,
                config,
                own_statistics=exact,
                fused_statistics=gn_sync is GnSync.fused,
                stale=stale,
                stale_layers=stale_layers,
                make_context=make_context,
            )
        return RankUNet(
            layers,
            choice.engine(traffic),
            cut=cut,
            assemble=assembly,
            kinds=kinds,
            sample_shape=(1 + guidance, unet.config.in_channels, height // VAE_FACTOR, width // VAE_FACTOR),
            patches=undo.pop_all(),
            captured=choice.captured,
            runs_as=choice.sentence,
        )


def _mode(sync_mode: SyncMode | None, gn_sync: GnSync, context: bool) -> SyncMode:
    """The mode of distrifuser's layers. Layers whose context is exchanged for them are those that are one step late."""
    if context:
        return SyncMode.sync_gn if gn_sync is GnSync.exact else SyncMode.separate_gn
    return sync_mode or SyncMode.full_sync


def _patches(exact: bool, gn_sync: GnSync) -> list[str]:
    """Names of the patches a UNet needs; repairs of crashes and of the race always."""
    names = ["peft_flag", "conv_shortcut", "comm_queue", "partial_sums"]
    return names + ["exact_groupnorm"] * exact + ["gn_sync"] * (gn_sync is GnSync.exact)


def _gathering(
    ranks: RankContext, parallelism: Parallelism, split_scheme: SplitScheme | None, codec: Codec | None
) -> Assembly:
    if ranks.topology.world_size == 1:
        return whole
    if parallelism is Parallelism.tensor:
        return GatherHalves(ranks) if ranks.topology.split_batch else whole
    if split_scheme is None:
        return GatherSlices(ranks, codec=codec)
    return GatherSlices(ranks, lambda counter: split_dim(split_scheme, counter))


def _repair(ranks: RankContext, cfg_repair: bool, repair: Repair | None) -> Repair | None:
    """The repair to use: none where a rank computes both halves of its slice anyway."""
    if not (cfg_repair and ranks.topology.split_batch):
        return None
    if repair is None:
        raise ValueError("cfg_repair=true needs a repair function (otil_exp.exchange.repair_pair)")
    return repair
