"""Linear layers of the attention modules are called with one argument."""

from __future__ import annotations

from contextlib import AbstractContextManager

from otil_exp.upstream.imports import pp_attn
from otil_exp.upstream.patches.replace import replaced


def peft_flag() -> AbstractContextManager[None]:
    """Tell distrifuser's attention (not diffusers) that the PEFT backend is in use.

    Without peft installed, modules/pp/attn.py:67 and :120 hand the LoRA `scale` to to_q and to_out, which diffusers
    0.42 makes plain nn.Linear: TypeError: Linear.forward() takes 2 positional arguments but 3 were given.
    """
    return replaced(pp_attn, "USE_PEFT_BACKEND", True)
