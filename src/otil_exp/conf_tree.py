"""The Hydra tree: where it is."""

from __future__ import annotations

from pathlib import Path


def conf_folder() -> Path:
    """Inside an installed wheel, at the top of a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.exists() else Path(__file__).parents[2] / "conf"
