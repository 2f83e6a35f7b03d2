"""What is said of a choice names no other choice in its place: some presets share a family's name."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from composing import Typed
from otil_exp.cells.rules import validate
from otil_exp.conf_tree import conf_folder

ALIASES = {
    path.stem: name
    for path in sorted((conf_folder() / "preset").glob("*.yaml"))
    if (name := OmegaConf.load(path).get("name")) not in (None, path.stem)
}
"""Presets by the name that a user types, whose records have another one."""

WRONG = (
    ("topology=2gpu_split",),
    ("topology=8gpu_nosplit", "height=100"),
    ("topology=4gpu_nosplit", "model=sd15_random"),
    ("topology=4gpu_nosplit", "refresh=rolling10"),
    ("topology=4gpu_nosplit", "engine.products=fp8"),
    ("topology=3gpu_nosplit", "warmup_steps=100"),
)


def test_there_are_presets_whose_name_is_anothers() -> None:
    assert ALIASES == {"asyncdiff_stride2": "asyncdiff", "naive_alternate": "naive_patch"}


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
@pytest.mark.parametrize("typed_name", ALIASES)
def test_a_sentence_names_the_preset_that_was_typed_or_none(
    typed: Typed, typed_name: str, wrong: tuple[str, ...]
) -> None:
    config = typed(f"preset={typed_name}", *wrong)
    try:
        validate(config)
    except ValueError as refused:
        said = f"{refused} ".replace(",", " ").replace(":", " ")
        assert f"preset={ALIASES[typed_name]} " not in said
