"""The only place that knows distrifuser: a UNet spread over ranks, behind the interface of a whole one."""

from otil_exp.upstream.build import build_unet
from otil_exp.upstream.context import MakeContextExchange
from otil_exp.upstream.sliced.decoder import sliced_vae
from otil_exp.upstream.unet import RankUNet

__all__ = ["MakeContextExchange", "RankUNet", "build_unet", "sliced_vae"]
