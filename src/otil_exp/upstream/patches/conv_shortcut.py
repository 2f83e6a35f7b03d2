"""Tensor-parallel residual blocks find their shortcut convolution."""

from __future__ import annotations

from contextlib import AbstractContextManager

from otil_exp.upstream.imports import DistriResnetBlock2DTP
from otil_exp.upstream.patches.replace import replaced


def conv_shortcut() -> AbstractContextManager[None]:
    """Give the tensor-parallel residual block the `conv_shortcut` of the block it wraps.

    modules/tp/resnet.py:195 reads self.conv_shortcut for module.conv_shortcut: AttributeError at the first block whose
    width changes.
    """
    return replaced(DistriResnetBlock2DTP, "conv_shortcut", property(lambda block: block.module.conv_shortcut))
