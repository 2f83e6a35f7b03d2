"""From a method's settings to the UNet of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from diffusers import UNet2DConditionModel

from otil_exp.config import (
    VAE_FACTOR,
    Engine,
    GroupNormKind,
    Parallelism,
    SplitScheme,
    StaleSums,
    SyncMode,
    TensorLayers,
)
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
from otil_exp.upstream.checks import check_graphs, check_method, check_sizes
from otil_exp.upstream.context import MakeContextExchange
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.engine import CudaGraphRecorder, CudaGraphs, Eager, StepEngine
from otil_exp.upstream.inputs import own_half, own_part, split_dim
from otil_exp.upstream.kinds import step_kinds
from otil_exp.upstream.layers import Layers
from otil_exp.upstream.patches import applied
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
    gn_sync: bool = False,
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
        sync_mode, noise_gather, gn_sync, make_context = None, True, False, None
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
    config = RankConfig(
        ranks,
        parallelism=parallelism.value,
        mode=_mode(sync_mode, gn_sync, make_context is not None).value,
        warmup_steps=warmup_steps,
        height=height,
        width=width,
        guidance=guidance,
    )
    exact = parallelism is Parallelism.patch and groupnorm is GroupNormKind.exact
    runs = _engine(engine, ranks, parallelism, traffic)
    with ExitStack() as undo:
        undo.enter_context(applied(*_patches(exact, gn_sync)))
        return RankUNet(
            Layers(
                unet, config, own_statistics=exact, stale=stale, stale_layers=stale_layers, make_context=make_context
            ),
            runs,
            cut=own_half(ranks) if split_scheme is None else own_part(ranks, split_scheme),
            assemble=assembly,
            kinds=step_kinds(parallelism, ranks.topology.slices, warmup_steps, split_scheme, stale is not None),
            sample_shape=(1 + guidance, unet.config.in_channels, height // VAE_FACTOR, width // VAE_FACTOR),
            patches=undo.pop_all(),
        )


def _mode(sync_mode: SyncMode | None, gn_sync: bool, context: bool) -> SyncMode:
    """The mode of distrifuser's layers. Layers whose context is exchanged for them are those that are one step late."""
    if context:
        return SyncMode.sync_gn if gn_sync else SyncMode.separate_gn
    return sync_mode or SyncMode.full_sync


def _patches(exact: bool, gn_sync: bool) -> list[str]:
    """Names of the patches a UNet needs; repairs of crashes and of the race always."""
    names = ["peft_flag", "conv_shortcut", "comm_queue", "partial_sums"]
    return names + ["exact_groupnorm"] * exact + ["gn_sync"] * gn_sync


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


def _engine(engine: Engine, ranks: RankContext, parallelism: Parallelism, traffic: TrafficCounter) -> StepEngine:
    if engine is Engine.eager:
        return Eager()
    check_graphs(ranks, parallelism)
    return CudaGraphs(traffic, CudaGraphRecorder())
