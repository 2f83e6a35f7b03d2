"""The layers of a rank that computes a picture, or a part of it, without its peers."""

from __future__ import annotations

from contextlib import ExitStack

from diffusers import UNet2DConditionModel

from otil_exp.choices import Engine, GnSync
from otil_exp.rank_unet.engine_choice import EngineChoice, choose_engine, forgets_graphs
from otil_exp.rank_unet.layers import PlainLayers, StepLayers
from otil_exp.rank_unet.sliced.layers import SlicedLayers
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


def alone_parts(
    engine: Engine, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
) -> tuple[StepLayers, EngineChoice, ExitStack]:
    """Layers, engine, and what closes them. The UNet is changed in place where it is compiled."""
    choice = choose_engine(engine, ranks, exchanges_in_layers=False)
    if not choice.compiled:
        return PlainLayers(unet), choice, ExitStack()
    layers = SlicedLayers(unet, ranks, traffic, together=False, gn_sync=GnSync.off, last_synchronous=-1)
    return layers, choice, forgets_graphs()
