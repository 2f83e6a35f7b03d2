"""The Hydra tree: where it is, and what there is to choose from."""

from __future__ import annotations

from pathlib import Path


def conf_folder() -> Path:
    """Inside an installed wheel, at the top of a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.exists() else Path(__file__).parents[2] / "conf"


def groups() -> list[str]:
    """Names of the groups of choices, Hydra's own aside: preset, topology, k ..."""
    return sorted(path.name for path in conf_folder().iterdir() if path.is_dir() and path.name != "hydra")


def options(group: str) -> list[str]:
    """What there is to choose from in a group, as it is typed: otil, ablation/budget."""
    folder = conf_folder() / group
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
