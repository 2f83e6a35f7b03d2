"""The attempts of a run: one that was interrupted goes on later, maybe on another machine, and each made its pictures.

An attempt in record.json: started, ended (null if it was killed), `prompts`, the indices of those whose pictures it
made (null if it did not come so far), and what `provenance` says of its machine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from otil_exp.run.provenance import now
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.record import Record
from otil_exp.run_folder.timing import Attempt, timed_attempts


def with_new_attempt(before: Record, machine: dict[str, Any]) -> list[Attempt]:
    """The attempts of a run, and one that begins now on a machine (`provenance`)."""
    return [*before.get("attempts", []), {"started": now(), "ended": None, "prompts": None, **machine}]


def with_last_ended(record: Record) -> list[Attempt]:
    """The attempts of a run, of which the last one ends now."""
    attempts: list[Attempt] = list(record.get("attempts", []))
    return [*attempts[:-1], attempts[-1] | {"ended": now()}] if attempts else []


def begin_pictures(folder: RunFolder, made: Collection[int]) -> None:
    """Credit the pictures that are there to the attempts before this one, which begins to make the others."""
    *earlier, this = folder.record["attempts"]
    _credit(earlier, made)
    folder.update_record(attempts=[*earlier, this | {"prompts": []}])


def end_pictures(folder: RunFolder) -> None:
    """Credit the other pictures to this attempt, which made the last one; the machine of the times is the run's."""
    record = folder.record
    attempts: list[Attempt] = record["attempts"]
    _credit(attempts, [prompt["index"] for prompt in record["prompts"]])
    timed = timed_attempts(attempts)[-1]
    machine = {key: value for key, value in timed.items() if key not in ("started", "ended", "prompts")}
    folder.update_record(attempts=attempts, **machine)


def _credit(attempts: Sequence[Attempt], made: Collection[int]) -> None:
    """Give every attempt the pictures that are still there, and the last one that made any those nobody has."""
    makers = [attempt for attempt in attempts if attempt["prompts"] is not None]
    there, credited = set(made), set[int]()
    for attempt in makers:
        attempt["prompts"] = [index for index in attempt["prompts"] if index in there]
        credited.update(attempt["prompts"])
    if makers:
        makers[-1]["prompts"] = sorted({*makers[-1]["prompts"], *(there - credited)})
