"""Which attempt made which pictures, and whose times count; by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otil_exp.run.attempts import begin_pictures, end_pictures, with_last_ended, with_new_attempt
from otil_exp.run.cost import cost_metrics
from otil_exp.run.failure import note_failure, note_interruption
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow
from otil_exp.run_folder.timing import machines, timed_rows

H200: dict[str, Any] = {"host": "node1", "gpus": ["H200"], "git_commit": "a"}
L40S: dict[str, Any] = {"host": "node2", "gpus": ["L40S"], "git_commit": "a"}


def begin(folder: RunFolder, machine: dict[str, Any], prompts: int = 6) -> None:
    """What an attempt notes before it makes anything."""
    folder.update_record(
        status="running",
        attempts=with_new_attempt(folder.record, machine),
        prompts=[{"index": i, "text": "a", "seed": i} for i in range(prompts)],
        **machine,
    )


def test_every_attempt_has_its_own_machine_and_pictures(tmp_path: Path) -> None:
    """Killed after 4 of 6 pictures, failed before it made any, and ended on another machine."""
    folder = RunFolder(tmp_path)
    begin(folder, H200)
    begin_pictures(folder, set())
    begin(folder, L40S)
    note_failure(folder, 0, "no weights", None)
    begin(folder, L40S)
    begin_pictures(folder, {0, 1, 2, 3})
    end_pictures(folder)
    folder.finish(attempts=with_last_ended(folder.record))
    killed, failed, last = folder.record["attempts"]
    assert [attempt["prompts"] for attempt in (killed, failed, last)] == [[0, 1, 2, 3], None, [4, 5]]
    assert [attempt["host"] for attempt in (killed, failed, last)] == ["node1", "node2", "node2"]
    assert [attempt["ended"] is None for attempt in (killed, failed, last)] == [True, False, False]
    assert folder.record["gpus"] == ["H200"]  # whose times are shown


def test_a_picture_that_is_made_again_counts_for_who_made_it_last(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    begin(folder, H200, prompts=3)
    begin_pictures(folder, set())
    end_pictures(folder)
    begin(folder, L40S, prompts=3)
    begin_pictures(folder, {0, 2})  # 01.png was found cut
    end_pictures(folder)
    assert [attempt["prompts"] for attempt in folder.record["attempts"]] == [[0, 2], [1]]


def test_an_interruption_ends_the_attempt(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    begin(folder, H200)
    note_interruption(folder)
    assert folder.record["attempts"][0]["ended"] == folder.record["ended"]


def rows(milliseconds: list[float]) -> list[StepRow]:
    """One steady step a picture."""
    return [StepRow(0, prompt, 0, "steady", ms, 10, 1) for prompt, ms in enumerate(milliseconds)]


def test_times_are_of_one_machine_without_the_first_picture_of_each_attempt() -> None:
    """node1 and its twin made 0-2 and 3-4 (cold: 0 and 3), another GPU 5-6: (20 + 22 + 24) / 3 = 22 ms."""
    attempts = [
        H200 | {"prompts": [0, 1, 2]},
        H200 | {"host": "node7", "prompts": [3, 4]},
        L40S | {"prompts": [5, 6]},
        L40S | {"prompts": None},
    ]
    steps = rows([900.0, 20.0, 22.0, 800.0, 24.0, 700.0, 70.0])
    assert [row.prompt for row in timed_rows(steps, warm=False, attempts=attempts)] == [1, 2, 4]
    entry = cost_metrics(steps, warm=False, attempts=attempts)["latency/step_ms"]
    assert (entry["value"], entry["n"], entry["machines"]) == (22.0, 3, 2)
    assert machines(attempts) == 2


def test_bytes_are_of_all_machines() -> None:
    attempts = [H200 | {"prompts": [0]}, L40S | {"prompts": [1, 2]}]
    steps = [StepRow(0, prompt, 0, "steady", 1.0, sent, 1) for prompt, sent in enumerate((40, 10, 10))]
    assert cost_metrics(steps, warm=False, attempts=attempts)["traffic/bytes_sent_per_step"]["value"] == 20


def test_attempts_of_one_picture_each_are_all_cold_and_count() -> None:
    attempts = [H200 | {"prompts": [0]}, H200 | {"prompts": [1]}]
    assert len(timed_rows(rows([5.0, 7.0]), warm=False, attempts=attempts)) == 2
