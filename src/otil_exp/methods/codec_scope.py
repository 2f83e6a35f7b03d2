"""codec.scope: whether what layers exchange in every step is written down in fewer bytes, too."""

from __future__ import annotations

from otil_exp.choices import CodecScope
from otil_exp.config import ExperimentConfig
from otil_exp.exchange import Codec


def codec_of(config: ExperimentConfig) -> Codec:
    """The codec of a cell. Raises ValueError for one that there is not."""
    return Codec(config.codec.quantizer, config.codec.residual)


def codes_layers(config: ExperimentConfig) -> bool:
    """Whether the codec reaches the layers' own exchanges, which wait for them in a synchronous step."""
    return config.codec.scope is CodecScope.all and config.codec.quantizer != "none"
