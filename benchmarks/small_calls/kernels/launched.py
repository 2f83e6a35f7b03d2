"""How an operator calls a kernel of Triton."""

from __future__ import annotations

from typing import Any

from torch.library import wrap_triton
from triton.runtime.jit import JITFunction


def launched(kernel: Any) -> Any:
    """A kernel that torch.compile sees through; one that Triton's interpreter runs is called as it is."""
    return wrap_triton(kernel) if isinstance(kernel, JITFunction) else kernel
