"""Where files are kept that later runs of a user find, on all machines that have the folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Below $XDG_CACHE_HOME (~/.cache); in a container a user may have no home: then of the temporary folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otil_exp"
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"otil_exp_{os.getuid()}")
