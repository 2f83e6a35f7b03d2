"""What the scripts of benchmarks/ stand on: jobs that wait for each other, and names that a long measurement trusts."""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import benchmark_jobs
from benchmarks import sd_models, three_transports
from benchmarks.fold.part import Part
from benchmarks.fold.table import table
from benchmarks.link_projection import __main__ as link_projection
from benchmarks.link_projection.figures import NVLINK
from benchmarks.one_gpu_speed.cases import CASES, UPSTREAM, Case, cases_on_cpu, cases_on_gpu
from benchmarks.one_gpu_speed.measure import SYNCHRONOUS_REPEATS, measured
from benchmarks.one_gpu_speed.outputs import compare_outputs
from benchmarks.several_gpus.parts import PARTS
from benchmarks.several_gpus.tables import together
from benchmarks.side_by_side import Job, side_by_side
from otil_exp.report.projection import ERROR
from otil_exp.schedule import Step

ROOT = Path(__file__).parents[1]


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


class CountingUNet:
    """In the place of a UNet: notes of which kind the steps are that it is called for."""

    method = SimpleNamespace(runs_as="eager")

    def begin(self, steps: tuple[Step, ...]) -> None:
        self._steps, self._next = steps, 0
        self.synchronous: list[bool] = []

    def __call__(self) -> SimpleNamespace:
        self.synchronous.append(self._steps[self._next].synchronous)
        self._next += 1
        return SimpleNamespace(sample=torch.zeros(2))


@pytest.mark.parametrize("both", [False, True])
def test_a_synchronous_step_is_timed_by_synchronous_steps_alone(both: bool) -> None:
    unet = CountingUNet()
    figures, _ = measured(unet, {}, Case("no_sync", "eager", both=both), torch.device("cpu"))
    first_silent = unet.synchronous.index(False)
    assert first_silent == (2 + SYNCHRONOUS_REPEATS if both else 1)
    assert not any(unet.synchronous[first_silent:])
    assert ("synchronous_ms" in figures) == both


def test_an_output_is_compared_with_that_of_upstreams_twin(tmp_path: Path) -> None:
    compiled = next(case for case in CASES if case.engine == "compiled" and case.method == "no_sync")
    upstream = replace(compiled, engine=UPSTREAM)
    torch.save(torch.tensor([3.0, 4.5]), tmp_path / f"{compiled.name}.pt")
    torch.save(torch.tensor([3.0, 4.0]), tmp_path / f"{upstream.name}.pt")
    results: list[dict[str, Any]] = [{"case": case.name} for case in (compiled, upstream)]
    compare_outputs(results, tmp_path)
    assert results == [{"case": compiled.name, "off_by": pytest.approx(0.1)}, {"case": upstream.name}]


def test_a_measurement_that_is_told_to_end_takes_its_part_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.several_gpus", str(tmp_path), "--parts", "pictures"]
    process = subprocess.Popen([*command, "--device", "cpu", "--model", "shapes"], cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (parts := parts_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    [part] = parts
    assert not Path(f"/proc/{part}").exists()


def parts_of(pid: int) -> list[int]:
    """Its children that run a part: what it imports may start short-lived programs, too."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"--only" in _command_line(child)]


def _command_line(pid: str) -> bytes:
    with contextlib.suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_a_figure_of_two_calls_is_that_of_the_later(tmp_path: Path) -> None:
    for call, figures in (("A", {"x": 1, "y": 1}), ("B", {"y": 2})):
        (tmp_path / call).mkdir()
        (tmp_path / call / "results.json").write_text(json.dumps({"part": figures}))
    assert together([str(tmp_path / call) for call in "AB"]) == {"part": {"x": 1, "y": 2}}


def test_a_method_is_compared_with_the_reference_of_its_engine() -> None:
    figure = {"part": "one_gpu", "model": "sd15", "side": 512, "topology": "1gpu", "peak_mib": None}
    figures = [
        figure | {"preset": "reference", "engine": "compiled", "steps_ms": 300.0},
        figure | {"preset": "reference", "engine": "cuda_graph", "steps_ms": 400.0},
        figure | {"preset": "otil", "engine": "cuda_graph", "steps_ms": 160.0, "steady_ms": 3.0, "steady_sent": 2500},
    ]
    assert sd_models.tables(figures)[-1] == "| otil | cuda_graph | 1gpu | - | 3.00 | 160.0 | 2.50 | 2 | - |"


def test_every_case_of_the_smaller_models_is_measured_once() -> None:
    cases = list(sd_models.cases(list(sd_models.PARTS)))
    assert len(set(cases)) == len(cases)
    assert {case.part for case in cases} <= set(sd_models.MEASURES)


def test_the_cases_of_an_engine_are_one_grid(tmp_path: Path) -> None:
    options = SimpleNamespace(out=tmp_path, small=False)
    case = sd_models.Case("two_gpus", "sd15", "reference", "compiled")
    cases = [case, replace(case, preset="fold"), replace(case, preset="fold", model="sd21")]
    typed = dict(override.split("=", 1) for override in sd_models.grid(cases, options))
    assert typed["preset"] == "reference,fold"
    assert typed["model"] == "sd15_random,sd21_random"
    assert (typed["topology"], typed["engine"], typed["mode"]) == ("2gpu_nosplit", "compiled", "benchmark")
    assert not [key for key, value in typed.items() if "," in value and key not in ("preset", "model")]


def test_three_transports_leave_no_cell_out_and_fit_a_call() -> None:
    """Links of each, every method at both sizes replayed, and compiled; none longer than nine minutes."""
    found = three_transports.pieces()
    assert len({one.name for one in found}) == len(found)
    assert max(one.bound_s for one in found) < 9 * 60
    every = three_transports.CELLS
    assert {"reference 1gpu", "otil 2gpu_nosplit", "fold 2gpu_nosplit", "guide 2gpu_split"} < set(every)
    for transport in three_transports.TRANSPORTS:
        own = [one for one in found if one.transport == transport]
        assert [one.what for one in own].count("links") == 1
        for engine in ("cuda_graph", "compiled"):
            for side in (1024, 2048):
                cells = [cell for one in own if (one.what, one.side) == (engine, side) for cell in one.cells]
                assert sorted(cells) == sorted(every)


def test_a_projection_is_as_near_as_reports_take_it_for() -> None:
    """From NVLink to the two other transports, all methods that were measured on both: median and largest error."""
    off = [
        abs(projected / measured - 1)
        for (_, origin, _), (measured, projected) in link_projection.errors().items()
        if origin == NVLINK
    ]
    assert len(off) == 12
    assert statistics.median(off) <= ERROR
    assert max(off) <= 0.2


def test_the_folds_peaks_are_shares_of_the_whole_unets_of_the_same_run() -> None:
    """Of both batches: one GPU has two halves, a rank of the batch split one. A part that failed has no row."""
    figures = {"cut": "-", "engine": "cuda_graph", "ms": 1.0, "ready_s": 2.0, "weights_mib": 3}
    whole = [{"part": "whole", "batch": batch, "peak_mib": peak, **figures} for batch, peak in ((2, 5000), (1, 4000))]
    inner = {"part": "inner", "batch": 1, "peak_mib": 3000, **figures}
    failed = {"part": "outer_default", "failed": "no such luck"}
    *_, row, _ = (lines := list(table([*whole, inner, failed])))
    assert row.endswith("| 3000 | 60.0 % | 75.0 % |")
    assert len(lines) == 2 + 3 + 1
    assert "| - | - | - |" in list(table([inner | {"peak_mib": None}]))[-1]


def test_the_parts_of_a_fold_have_files_of_their_own() -> None:
    parts = [
        Part(part, cut, engine, batch)
        for part in ("outer", "inner")
        for cut in ("default", "every2", "down1.down/up0.attn1", "down1.down/up0.attn1.4")
        for engine in ("cuda_graph", "compiled")
        for batch in (1, 2)
    ]
    assert len({part.name for part in parts}) == len(parts)
    assert not any("/" in part.name for part in parts)
