from otil_exp.rank_unet.kinds import (
    ALIKE,
    first_and_later,
    first_apart,
    steady,
    synchronous_first_and_later,
    synchronous_or_rolling,
    synchronous_or_silent,
)
from otil_exp.schedule import schedule


def of_steps(kinds, steps=9, **settings):
    return [kinds.of(step) for step in schedule(steps, **settings)]


def of_examples(kinds):
    return [kinds.of(step) for step in kinds.examples]


def test_steps_of_late_layers_are_synchronous_or_first_after_or_later():
    kinds = synchronous_first_and_later(warmup_steps=4)
    assert [step.counter for step in kinds.examples] == [0, 5, 6]  # upstream's graphs, pipelines.py:153
    assert of_steps(kinds, warmup_steps=4) == [0, 0, 0, 0, 0, 1, 2, 2, 2]


def test_a_refresh_replays_the_synchronous_graph():
    assert of_steps(synchronous_or_silent(warmup_steps=4), warmup_steps=4, refresh_period=2) == [0] * 5 + [1, 0, 1, 0]


def test_without_warm_up_the_first_step_still_renews_the_text_cache():
    kinds = first_and_later()
    assert of_steps(kinds, steps=3, warmup_steps=-1) == [0, 1, 1]
    assert [step.counter for step in kinds.examples] == [0, 1]


def test_a_silent_method_has_synchronous_and_later_steps():
    kinds = synchronous_or_silent(warmup_steps=1)
    assert of_steps(kinds, steps=4, warmup_steps=1) == [0, 0, 1, 1]
    assert of_examples(kinds) == [0, 1]


def test_the_parts_of_a_rolling_renewal_take_turns_after_warm_up():
    kinds = synchronous_or_rolling(warmup_steps=1, period=3)
    assert of_steps(kinds, warmup_steps=1) == [0, 0, 1, 2, 3, 1, 2, 3, 1]
    assert of_examples(kinds) == [0, 1, 2, 3]


def test_a_picture_s_first_step_may_be_of_its_own_kind_also_where_a_refresh_runs_at_its_counter():
    kinds = first_apart(synchronous_or_silent(warmup_steps=1))
    assert of_steps(kinds, steps=6, warmup_steps=1, refresh_period=3) == [0, 1, 2, 2, 1, 2]
    short = first_apart(synchronous_or_silent(warmup_steps=0))
    assert of_steps(short, steps=4, warmup_steps=0, refresh_period=2) == [0, 2, 1, 2]
    late = first_apart(synchronous_first_and_later(warmup_steps=1))
    assert of_steps(late, steps=5, warmup_steps=1) == [0, 1, 2, 3, 3]
    assert of_examples(late) == [0, 1, 2, 3]


def test_steps_that_are_alike_need_one_kind():
    assert len(ALIKE.examples) == 1
    assert {ALIKE.of(steady(counter)) for counter in range(9)} == {0}
