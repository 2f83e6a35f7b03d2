import pytest

from otil_exp.choices import Parallelism, SplitScheme
from otil_exp.rank_unet.kinds import step_kinds


def test_patch_steps_are_synchronous_or_first_after_or_later():
    kinds = step_kinds(Parallelism.patch, 2, warmup_steps=4, split_scheme=None)
    assert kinds.examples == (0, 5, 6)  # upstream's graphs, pipelines.py:153
    assert [kinds.of(counter) for counter in range(9)] == [0, 0, 0, 0, 0, 1, 2, 2, 2]


def test_a_refresh_runs_at_counter_0_and_so_replays_the_synchronous_graph():
    assert step_kinds(Parallelism.patch, 2, warmup_steps=4, split_scheme=None).of(0) == 0


def test_without_warm_up_the_first_step_still_renews_the_text_cache():
    kinds = step_kinds(Parallelism.patch, 2, warmup_steps=-1, split_scheme=None)
    assert kinds.examples[kinds.of(0)] == 0
    assert kinds.examples[kinds.of(3)] > 0


def test_tensor_with_stale_sums_has_synchronous_and_later_steps():
    kinds = step_kinds(Parallelism.tensor, 2, warmup_steps=1, split_scheme=None, stale_sums=True)
    assert [kinds.of(counter) for counter in range(4)] == [0, 0, 1, 1]
    assert [kinds.of(counter) for counter in kinds.examples] == [0, 1]


@pytest.mark.parametrize(("scheme", "expected"), [("row", [0, 0, 0]), ("col", [0, 0, 0]), ("alternate", [0, 1, 0])])
def test_naive_patch_has_a_kind_for_each_direction(scheme, expected):
    kinds = step_kinds(Parallelism.naive_patch, 2, warmup_steps=4, split_scheme=SplitScheme(scheme))
    assert [kinds.of(counter) for counter in range(3)] == expected


@pytest.mark.parametrize("parallelism", [Parallelism.patch, Parallelism.naive_patch, Parallelism.tensor])
def test_one_slice_needs_one_kind(parallelism):
    assert step_kinds(parallelism, 1, warmup_steps=4, split_scheme=None).examples == (0,)
