"""Where the slices of a cell meet: 256 x 320 pixels on two ranks."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.methods.geometry import depth_of, is_reference, latent_size, seams_of
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


@pytest.mark.parametrize(
    ("overrides", "stages", "ages"),
    [
        (["preset=fold"], 2, [0, 0, 1, 1, 1, 1]),
        (["preset=fold", "topology=3gpu_nosplit"], 3, [0, 0, 1, 2, 2, 2]),
        (["preset=fold", "refresh.period=2"], 2, [0, 0, 1, 0, 1, 0]),
        (["preset=asyncdiff"], 2, [0, 0, 1, 2, 2, 2]),
    ],
)
def test_a_cut_by_depth_has_stages_and_the_ages_of_every_step(
    typed: Typed, overrides: list[str], stages: int, ages: list[int]
) -> None:
    config = effective(typed(*SIZE, "num_inference_steps=6", "warmup_steps=1", *overrides))
    depth = depth_of(config)
    assert depth is not None
    assert list(depth.ages) == ages
    assert len(depth.shares) == stages
    assert sum(depth.shares) == pytest.approx(1)
    assert len(depth.ends) == {2: 2, 3: 4}[stages]  # down, inner, up; and nested


@pytest.mark.parametrize("preset", ["otil", "tensor", "step_reuse", "reference"])
def test_other_methods_have_no_stages(typed: Typed, preset: str) -> None:
    assert depth_of(effective(typed(*SIZE, f"preset={preset}"))) is None
