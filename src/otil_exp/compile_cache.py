"""Where torch.compile keeps what it compiled, and whether a C++ compiler can work there."""

from __future__ import annotations

import getpass
import os
import re
import tempfile

from otil_exp.choices import DeviceKind, Engine
from otil_exp.config import ExperimentConfig

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""PyTorch's variable for it."""


def check_compile_cache(config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, for a path that PyTorch hands to the C++ compiler without quotes."""
    if config.engine.name is not Engine.compiled or config.device.kind is not DeviceKind.cpu:
        return
    folder = compiler_folder()
    if any(character.isspace() for character in folder):
        raise ValueError(
            f"engine=compiled with device=cpu: PyTorch's cache {folder!r} has a space in its path, at which the C++ "
            f"compiler takes it apart; type {VARIABLE}=/tmp/inductor otil-exp ..., or use engine=eager"
        )


def compiler_folder() -> str:
    """The folder of this machine where PyTorch keeps what it compiled."""
    return os.environ.get(VARIABLE) or os.path.join(tempfile.gettempdir(), f"torchinductor_{_user()}")


def _user() -> str:
    """As PyTorch has it (cache_dir_utils of torch._inductor, slow to import); in containers a user may have no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)
