"""Import distrifuser 0.0.1b1 (written for diffusers 0.24) on diffusers 0.42; nothing else imports it.

What the rest of `upstream` needs of distrifuser is re-exported here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OLD_UNET_MODULE = "diffusers.models.unet_2d_condition"
_OLD_FLAG = "USE_PEFT_BACKEND"


@contextmanager
def imported() -> Iterator[None]:
    """Make `import distrifuser` succeed inside the block, and leave sys.modules and diffusers as they were.

    Two names of diffusers 0.24 are put back meanwhile: the module diffusers.models.unet_2d_condition
    (distrifuser/models/distri_sdxl_unet_pp.py:4, distri_sdxl_unet_tp.py:5, naive_patch_sdxl.py:3), which moved to
    models/unets, and diffusers.models.resnet.USE_PEFT_BACKEND (distrifuser/modules/tp/resnet.py:2), which is gone;
    True is what makes tp/resnet.py call a plain Conv2d with one argument.
    """
    resnet = importlib.import_module("diffusers.models.resnet")
    add_module, add_flag = _OLD_UNET_MODULE not in sys.modules, not hasattr(resnet, _OLD_FLAG)
    if add_module:
        sys.modules[_OLD_UNET_MODULE] = importlib.import_module("diffusers.models.unets.unet_2d_condition")
    if add_flag:
        setattr(resnet, _OLD_FLAG, True)
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "distrifuser":
            raise
        raise ImportError(
            "distrifuser is not installed: pip install --no-deps distrifuser==0.0.1b1 (without --no-deps pip refuses, "
            "because distrifuser asks for diffusers 0.24)"
        ) from error
    finally:
        if add_module:
            del sys.modules[_OLD_UNET_MODULE]
        if add_flag:
            delattr(resnet, _OLD_FLAG)


with imported():
    from distrifuser.models.base_model import BaseModel
    from distrifuser.models.distri_sdxl_unet_pp import DistriUNetPP
    from distrifuser.models.distri_sdxl_unet_tp import DistriUNetTP
    from distrifuser.modules.base_module import BaseModule
    from distrifuser.modules.pp import attn as pp_attn
    from distrifuser.modules.pp import conv2d as pp_conv2d
    from distrifuser.modules.pp.attn import DistriSelfAttentionPP
    from distrifuser.modules.pp.conv2d import DistriConv2dPP
    from distrifuser.modules.pp.groupnorm import DistriGroupNorm
    from distrifuser.modules.tp import attention, conv2d, feed_forward, resnet
    from distrifuser.modules.tp.attention import DistriAttentionTP
    from distrifuser.modules.tp.conv2d import DistriConv2dTP
    from distrifuser.modules.tp.feed_forward import DistriFeedForwardTP
    from distrifuser.modules.tp.resnet import DistriResnetBlock2DTP
    from distrifuser.utils import DistriConfig, PatchParallelismCommManager

tp_modules = (attention, conv2d, feed_forward, resnet)
"""Modules of the tensor-parallel layers."""

__all__ = [
    "BaseModel",
    "BaseModule",
    "DistriAttentionTP",
    "DistriConfig",
    "DistriConv2dPP",
    "DistriConv2dTP",
    "DistriFeedForwardTP",
    "DistriGroupNorm",
    "DistriResnetBlock2DTP",
    "DistriSelfAttentionPP",
    "DistriUNetPP",
    "DistriUNetTP",
    "PatchParallelismCommManager",
    "imported",
    "pp_attn",
    "pp_conv2d",
    "tp_modules",
]
