"""preset.gn_sync: whose rows GroupNorm sees while the other layers are silent."""

from __future__ import annotations

from otil_exp.choices import GnSync

_SPELLINGS = {str(choice.value).lower(): choice for choice in GnSync}


def gn_sync_of(setting: bool | str) -> GnSync:
    """What preset.gn_sync means: a user types true, false or fused. Raises ValueError for anything else."""
    if str(setting).lower() not in _SPELLINGS:
        raise ValueError(f"preset.gn_sync={setting}: use true (exact), fused (one collective a step) or false")
    return _SPELLINGS[str(setting).lower()]
