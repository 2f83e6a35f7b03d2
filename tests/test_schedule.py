import pytest

from otil_exp.schedule import Step, schedule


def indices(steps, kind):
    return [step.index for step in steps if step.kind == kind]


def test_fifty_steps_with_a_refresh_every_ten():
    steps = schedule(50, 4, 10, finalizes=True)
    assert [step.index for step in steps] == list(range(50))
    assert indices(steps, "warmup") == [0, 1, 2, 3, 4]
    assert indices(steps, "refresh") == [14, 24, 34, 44]
    assert indices(steps, "final") == [49]
    assert [step.index for step in steps if step.synchronous] == [0, 1, 2, 3, 4, 14, 24, 34, 44]


def test_every_step_of_a_short_run():
    assert schedule(6, 1, 2, finalizes=True) == (
        Step(0, "warmup", synchronous=True, counter=0),
        Step(1, "warmup", synchronous=True, counter=1),
        Step(2, "steady", synchronous=False, counter=2),
        Step(3, "refresh", synchronous=True, counter=0),
        Step(4, "steady", synchronous=False, counter=4),
        Step(5, "refresh", synchronous=True, counter=0),  # exact already
    )


def test_the_counter_is_the_index_again_after_a_refresh():
    assert [step.counter for step in schedule(16, 4, 5)] == [*range(9), 0, 10, 11, 12, 13, 0, 15]


def test_a_method_without_exchange_has_no_final_step():
    assert schedule(6, 4, 0)[-1] == Step(5, "steady", synchronous=False, counter=5)


def test_a_rolling_refresh_is_not_synchronous_and_leaves_the_counter_alone():
    assert schedule(6, 1, 2, finalizes=True, rolling=True)[2:] == (
        Step(2, "steady", synchronous=False, counter=2),
        Step(3, "refresh", synchronous=False, counter=3),
        Step(4, "steady", synchronous=False, counter=4),
        Step(5, "final", synchronous=False, counter=5),
    )


def test_a_last_step_within_the_warm_up_is_warm_up():
    assert schedule(3, 4, 0, finalizes=True)[-1] == Step(2, "warmup", synchronous=True, counter=2)


@pytest.mark.parametrize("steps", range(1, 12))
@pytest.mark.parametrize("period", range(5))
def test_the_kind_of_a_step_says_whether_it_is_synchronous(steps, period):
    for step in schedule(steps, 2, period, finalizes=True):
        assert step.synchronous is (step.kind in ("warmup", "refresh"))


def test_without_a_warm_up_all_steps_are_steady():
    assert schedule(3, -1, 1) == tuple(Step(index, "steady", synchronous=False, counter=index) for index in range(3))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0, 4, 0), "num_inference_steps=0: .* at least one"),
        ((50, -2, 0), "warmup_steps=-2: use 0 or more"),
        ((50, 4, -1), r"refresh\.period=-1: use 0 or refresh=never"),
    ],
)
def test_impossible_schedules_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        schedule(*arguments)
