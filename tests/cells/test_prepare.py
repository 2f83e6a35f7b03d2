"""From a composed config to a cell."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from composing import Compose, Typed
from otil_exp.cells.prepare import prepare
from otil_exp.config import to_plain

PRESETS = ("reference", "naive_patch", "full_sync", "distrifusion", "guide", "otil", "otil_context", "tensor_stale")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_plain_config_is_what_omegaconf_makes_of_it(typed: Typed, preset: str) -> None:
    config = typed(f"preset={preset}", "metrics=shapes", "topology=4gpu_split")
    expected = OmegaConf.to_container(OmegaConf.structured(config), resolve=True, enum_to_str=True)
    assert to_plain(config) == expected


def test_a_cell_is_called_by_its_method_and_topology(composed: Compose) -> None:
    cells = [prepare(composed("device=cpu", f"preset={name}", "topology=4gpu_split")) for name in ("otil", "reference")]
    assert [cell.label for cell in cells] == ["otil on 4gpu_split", "reference on 1gpu"]
    planned = cells[1].folder.known
    assert (planned["is_reference"], planned["topology"]["name"]) == (True, "1gpu")
