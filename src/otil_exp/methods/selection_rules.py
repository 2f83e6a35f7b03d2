"""Rules of methods that send some blocks of a slice: do they tile it, is there such a score, what does not matter."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from otil_exp.config import ExperimentConfig
from otil_exp.exchange import SCORES, BlockGrid, resolve_budget
from otil_exp.methods.geometry import latent_size, slicing_of
from otil_exp.methods.selection import SelectionConfig

Selection = TypeVar("Selection", bound=SelectionConfig)


def grid_of(selection: SelectionConfig, config: ExperimentConfig) -> BlockGrid:
    """The blocks of one slice's latent rows. Raises ValueError where they do not tile it."""
    height, width = latent_size(config)
    return BlockGrid(rows=height // slicing_of(config).rows, width=width, block_size=selection.block_size)


def budget_of(selection: SelectionConfig, config: ExperimentConfig) -> int:
    """Blocks sent a step, k. Raises ValueError for a budget that is none of a slice's blocks."""
    return resolve_budget(config.k.budget, grid_of(selection, config).count)


def check_selection(key: str, selection: SelectionConfig, config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, for a selection that cannot be made. key: where its settings are typed."""
    if selection.score not in SCORES:
        raise ValueError(f"{key}.score={selection.score}: use one of {', '.join(SCORES)}")
    if SCORES[selection.score].needs_polling and not selection.polling:
        raise ValueError(
            f"{key}.score={selection.score} with {key}.polling=false: it would send the same blocks for "
            f"ever; use {key}.polling=true"
        )
    if slicing_of(config).rows > 1:
        budget_of(selection, config)


def normal_selection(selection: Selection, config: ExperimentConfig) -> Selection:
    """Where all blocks are sent it does not matter how they score; a score that looks at no block compares nothing."""
    if budget_of(selection, config) == grid_of(selection, config).count:
        return with_defaults(selection, "score", "against", "polling", "score_on", "halos")
    return with_defaults(selection, "against", "score_on") if SCORES[selection.score].blind else selection


def with_defaults(settings: Selection, *names: str) -> Selection:
    """The defaults of these settings, where there are such settings."""
    defaults: dict[str, Any] = {one.name: one.default for one in fields(settings) if one.name in names}
    return replace(settings, **defaults)
