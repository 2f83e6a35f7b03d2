"""What a run cost, from steps made by hand."""

from __future__ import annotations

import pytest

from otil_exp.run.benchmark import image_latency
from otil_exp.run.cost import cost_metrics, stage_metrics
from otil_exp.run_folder.steps import StepRow


def row(rank: int, prompt: int, step: int, kind: str, ms: float, sent: int, collectives: int) -> StepRow:
    return StepRow(rank=rank, prompt=prompt, step=step, kind=kind, ms=ms, bytes_sent=sent, collectives=collectives)


def test_cost_counts_steps_after_warm_up_and_forgets_the_first_picture() -> None:
    """Two pictures of a warm-up and a steady step on two ranks: the second picture's times, all pictures' bytes."""
    rows = [
        *[row(rank, 0, 0, "warmup", 900, 4000, 1) for rank in (0, 1)],
        *[row(rank, 0, 1, "steady", 700, 100 + rank, 3) for rank in (0, 1)],
        *[row(rank, 1, 0, "warmup", 30, 4000, 1) for rank in (0, 1)],
        *[row(rank, 1, 1, "steady", 10 + rank, 100 + rank, 3) for rank in (0, 1)],
    ]
    values = {key: metric["value"] for key, metric in cost_metrics(rows, warm=False).items()}
    assert values == {
        "latency/step_ms": 10,
        "latency/step_ms_all": 20,
        "latency/warmup_ms": 30,
        "latency/steady_ms": 10,
        "latency/refresh_ms": None,
        "traffic/bytes_sent_per_step": 100.5,
        "traffic/bytes_sent_per_step_all": 2050.25,
        "traffic/collectives_per_step": 3,
        "traffic/collectives_per_step_all": 2,
    }


def test_latency_drops_the_extremes_and_keeps_the_samples() -> None:
    latency = image_latency([5.0, 1.0, 2.0, 3.0, 100.0], drop_extremes=1)
    assert latency["value"] == pytest.approx(10 / 3)
    assert (latency["n"], latency["dropped"], latency["samples"]) == (3, 2, [5.0, 1.0, 2.0, 3.0, 100.0])


def test_a_refresh_counts_as_often_as_it_happens() -> None:
    """Nine steady steps of 10 ms and a refresh of 100: 19 ms a step, not the 10 of the median."""
    rows = [row(0, 0, i, "refresh" if i == 9 else "steady", 100 if i == 9 else 10, 0, 0) for i in range(10)]
    metrics = cost_metrics(rows, warm=True)
    values = {key: entry["value"] for key, entry in metrics.items() if key.startswith("latency/")}
    of_all = {"latency/step_ms": 19, "latency/step_ms_all": 19}
    assert values == of_all | {"latency/warmup_ms": None, "latency/steady_ms": 10, "latency/refresh_ms": 100}


def test_a_run_that_is_all_warm_up_has_no_step_after_it() -> None:
    metrics = cost_metrics([row(0, 0, 0, "warmup", 5, 100, 1)], warm=True)
    assert (metrics["latency/step_ms"]["value"], metrics["latency/step_ms"]["n"]) == (None, 0)
    assert metrics["latency/step_ms_all"]["value"] == 5


def test_times_have_their_spread_beside_the_mean() -> None:
    """0, 1, .. 100 ms: the median is 50, 5 % of the steps are below 5 and above 95."""
    rows = [row(0, 0, i, "steady", i, 0, 0) for i in range(101)]
    entry = cost_metrics(rows, warm=True)["latency/step_ms"]
    assert (entry["value"], entry["median"], entry["p5"], entry["p95"], entry["n"]) == (50, 50, 5, 95, 101)


def test_a_run_without_steps_after_the_warm_up_says_so() -> None:
    assert "warm-up" in cost_metrics([row(0, 0, 0, "warmup", 5, 100, 1)], warm=True)["latency/step_ms"]["missing"]


def test_a_run_whose_steps_are_gone_has_no_costs_and_says_so() -> None:
    metrics = cost_metrics([], warm=False)
    assert all(metric["value"] is None and metric["missing"] for metric in metrics.values())


def test_a_unet_cut_by_depth_says_its_stages_and_its_oldest_step() -> None:
    stages = {"shares": [0.25, 0.75], "ends": ["down0.down", "up1.attn0"], "ages": [0, 0, 1, 3, 2]}
    found = stage_metrics({"stages": stages})
    assert {key: metric["value"] for key, metric in found.items()} == {"stages/count": 2, "stages/oldest": 3}
    assert stage_metrics({"stages": None}) == stage_metrics({}) == {}
