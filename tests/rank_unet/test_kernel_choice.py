"""What graphs are told while they are compiled: rows of LayerNorm in one piece."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sympy
from torch._inductor.choices import InductorChoices
from torch._inductor.runtime.hints import ReductionHint
from torch._inductor.virtualized import V

from otil_exp.rank_unet.kernel_choice import best_kernels
from otil_exp.rank_unet.rows_at_once import RowsAtOnce


@pytest.mark.parametrize(
    ("length", "hint", "cooperative", "expected"),
    [
        (1280, ReductionHint.INNER, False, True),
        (2048, ReductionHint.INNER, False, True),
        (2560, ReductionHint.INNER, False, False),
        (1024, ReductionHint.DEFAULT, False, True),
        (1280, ReductionHint.OUTER, False, False),
        (1280, ReductionHint.INNER, True, False),
    ],
)
def test_rows_up_to_a_length_are_read_once(
    length: int, hint: ReductionHint, cooperative: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InductorChoices, "should_use_persistent_reduction", staticmethod(lambda *_: False))
    features = SimpleNamespace(reduction_numel=sympy.Integer(length), get_reduction_hint=lambda: hint)
    assert RowsAtOnce.should_use_persistent_reduction(features, cooperative) is expected


def test_what_inductor_reads_once_by_itself_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InductorChoices, "should_use_persistent_reduction", staticmethod(lambda *_: True))
    assert RowsAtOnce.should_use_persistent_reduction(None, True)


def test_graphs_are_told_while_they_are_compiled_and_not_after() -> None:
    before = V.choices
    with best_kernels():
        assert isinstance(V.choices, RowsAtOnce)
    assert V.choices is before
    assert not isinstance(before, RowsAtOnce)
