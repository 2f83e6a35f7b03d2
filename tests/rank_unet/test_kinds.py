from otil_exp.rank_unet.kinds import ALIKE, first_and_later, synchronous_first_and_later, synchronous_or_silent


def test_steps_of_late_layers_are_synchronous_or_first_after_or_later():
    kinds = synchronous_first_and_later(warmup_steps=4)
    assert kinds.examples == (0, 5, 6)  # upstream's graphs, pipelines.py:153
    assert [kinds.of(counter) for counter in range(9)] == [0, 0, 0, 0, 0, 1, 2, 2, 2]


def test_a_refresh_runs_at_counter_0_and_so_replays_the_synchronous_graph():
    assert synchronous_first_and_later(warmup_steps=4).of(0) == 0
    assert synchronous_or_silent(warmup_steps=4).of(0) == 0


def test_without_warm_up_the_first_step_still_renews_the_text_cache():
    kinds = first_and_later()
    assert kinds.examples[kinds.of(0)] == 0
    assert kinds.examples[kinds.of(3)] > 0


def test_a_silent_method_has_synchronous_and_later_steps():
    kinds = synchronous_or_silent(warmup_steps=1)
    assert [kinds.of(counter) for counter in range(4)] == [0, 0, 1, 1]
    assert [kinds.of(counter) for counter in kinds.examples] == [0, 1]


def test_steps_that_are_alike_need_one_kind():
    assert ALIKE.examples == (0,)
    assert {ALIKE.of(counter) for counter in range(9)} == {0}
