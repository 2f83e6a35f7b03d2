"""What the scripts of benchmarks/ stand on: jobs that wait for each other, and names that a long measurement trusts."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

import benchmark_jobs
from benchmarks.one_gpu_speed.cases import cases_on_cpu, cases_on_gpu
from benchmarks.several_gpus.parts import PARTS
from benchmarks.side_by_side import Job, side_by_side


def test_jobs_get_ready_together_and_go_on_one_by_one(tmp_path: Path) -> None:
    order = tmp_path / "order"
    first, second = (Job(name, tmp_path, benchmark_jobs.waits, order) for name in ("first", "second"))
    with side_by_side([first, second], 60):
        assert first.ready_s is not None
        assert second.ready_s is not None
        assert not order.exists()
        assert second.go(60)
        assert order.read_text() == "second\n"
        assert first.go(60)
    assert order.read_text() == "second\nfirst\n"
    assert first.last_words == "here\n"


def test_a_job_that_fails_or_takes_too_long_costs_only_itself(tmp_path: Path) -> None:
    names = ("fails", "never_ready", "never_done")
    jobs = [Job(name, tmp_path, getattr(benchmark_jobs, name)) for name in names]
    good = Job("good", tmp_path, benchmark_jobs.waits, tmp_path / "order")
    with side_by_side([*jobs, good], 8):
        assert [job.ready_s is None for job in jobs] == [True, True, False]
        assert [job.go(0.5) for job in jobs] == [False, False, False]
        assert jobs[0].last_words == "no such luck\n"
        assert good.go(60)


def test_no_job_outlives_an_error(tmp_path: Path) -> None:
    job = Job("never_done", tmp_path, benchmark_jobs.never_done)
    with pytest.raises(KeyError), side_by_side([job], 60):
        raise KeyError
    assert job.process is not None
    assert not job.process.is_alive()


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_a_function_of_the_plan(name: str) -> None:
    part = PARTS[name]
    signature(part.function).bind(*part.arguments, "plan")


def test_cases_are_told_apart_by_their_names() -> None:
    for cases in (cases_on_gpu(), cases_on_cpu()):
        assert len({case.name for case in cases}) == len(cases)
