"""Where the slices of a cell meet: 256 x 320 pixels on two ranks."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.methods.geometry import is_reference, latent_size, seams_of
from otil_exp.metrics.seam import Boundaries

SIZE = ("height=256", "width=320", "topology=2gpu_nosplit")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["preset=otil"], Boundaries(rows=(128,))),
        (["preset=naive_patch"], Boundaries(rows=(128,))),
        (["preset=naive_patch", "preset.split_scheme=col"], Boundaries(columns=(160,))),
        (["preset=naive_patch", "preset.split_scheme=alternate"], Boundaries(rows=(128,), columns=(160,))),
        (["preset=tensor"], Boundaries()),
        (["preset=reference"], Boundaries()),
        (["preset=otil", "topology=2gpu_split"], Boundaries()),
    ],
)
def test_a_method_cuts_rows_and_naive_patch_as_its_scheme_says(
    typed: Typed, overrides: list[str], expected: Boundaries
) -> None:
    config = effective(typed(*SIZE, *overrides))
    assert seams_of(config) == expected
    assert latent_size(config) == (32, 40)


def test_any_method_on_one_rank_is_the_reference(typed: Typed) -> None:
    assert is_reference(effective(typed("preset=tensor", "topology=1gpu")))
    assert not is_reference(effective(typed("preset=tensor", "topology=2gpu_split")))
