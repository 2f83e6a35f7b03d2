"""preset.order of methods whose context is late: which there are, and where it makes no difference."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.rules import validate

TWO = "topology=2gpu_nosplit"
LATE = ("distrifusion", "otil_context", "tensor_stale")


@pytest.mark.parametrize("preset", [*LATE, "step_reuse"])
@pytest.mark.parametrize("order", [-1, 2])
def test_a_line_is_all_there_is(typed: Typed, preset: str, order: int) -> None:
    with pytest.raises(ValueError, match=rf"preset\.order={order}: use 0 \(as it is\) or 1 \(a line\)$"):
        validate(typed(f"preset={preset}", TWO, f"preset.order={order}"))


@pytest.mark.parametrize("preset", LATE)
def test_a_forecast_is_off_and_another_cell(typed: Typed, preset: str) -> None:
    without = effective(typed(f"preset={preset}", TWO))
    assert without.preset.order == 0
    line = effective(typed(f"preset={preset}", TWO, "preset.order=1"))
    assert line.preset.order == 1
    assert effective(typed(f"preset={preset}", TWO, "preset.order=0")) == without != line


@pytest.mark.parametrize("preset", ["full_sync", "tensor"])
def test_where_nothing_is_late_nothing_is_forecast(typed: Typed, preset: str) -> None:
    assert effective(typed(f"preset={preset}", TWO, "preset.order=1")) == effective(typed(f"preset={preset}", TWO))
