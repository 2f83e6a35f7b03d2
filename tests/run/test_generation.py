"""Making pictures costs the same for the last one as for the first, and goes on where it was interrupted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from otil_exp.pipeline import Generated, RankPipeline, StepTrace
from otil_exp.prompts import Prompt
from otil_exp.run import generation
from otil_exp.run.attempts import with_new_attempt
from otil_exp.run.generation import generate, messages_of
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.messages import MessageRow
from otil_exp.run_folder.whole import BrokenFolderError
from otil_exp.schedule import Step
from otil_exp.topology import RankContext, single_rank
from otil_exp.tracking.tracker import NoTracker
from otil_exp.traffic import Message, Traffic

STEPS = 4


@dataclass
class Painter:
    """A pipeline of one rank that paints noise of 8 x 8 pixels, in no time; of prompt `dies_at` it dies."""

    dies_at: int | None = None
    painted: list[int] = field(default_factory=list)
    ranks: RankContext = field(default_factory=lambda: single_rank(torch.device("cpu")))
    steps: list[int] = field(default_factory=lambda: list(range(STEPS)))
    decodes: bool = True
    config: Any = field(default_factory=lambda: SimpleNamespace(metrics=None))

    calibrated_on: list[int] = field(default_factory=list)
    overflow: dict[str, int] | None = None

    def calibrate(self, prompt: str, seed: int) -> None:
        self.calibrated_on.append(seed)

    def products(self) -> dict[str, Any] | None:
        if self.overflow is None:
            return None
        return {"kind": "fp8", "margin": 2.0, "layers": [f"layer{i}" for i in range(9)], "overflow": self.overflow}

    def __call__(self, prompt: str, seed: int, **options: Any) -> Generated:
        if seed == self.dies_at:
            raise KeyboardInterrupt
        self.painted.append(seed)
        image = np.random.default_rng(seed).random((8, 8, 3), dtype=np.float32)
        traces = [StepTrace(Step(i, "steady", False, i), 1.5, Traffic(2, 10)) for i in self.steps]
        return Generated(latents=torch.zeros(1), image=image, steps=traces)


@pytest.fixture(autouse=True)
def _no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "score_run", lambda *arguments: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # five thousand of them take a minute


def attempt(folder: RunFolder, prompts: int, dies_at: int | None = None) -> list[int]:
    """Begin, make what is missing, and say which pictures were painted."""
    return made_by(Painter(dies_at=dies_at), folder, prompts).painted


def made_by(painter: Painter, folder: RunFolder, prompts: int) -> Painter:
    listed = [Prompt(index=i, text="a", seed=i) for i in range(prompts)]
    folder.update_record(
        status="running",
        prompts=[{"index": i, "text": "a", "seed": i} for i in range(prompts)],
        attempts=with_new_attempt(folder.record, {"host": "here"}),
    )
    try:
        generate(cast(RankPipeline, painter), listed, folder, NoTracker())
        folder.finish()
    except KeyboardInterrupt:
        pass
    return painter


def counted(work: Callable[[], object]) -> tuple[int, int]:
    """Bytes that this process read and wrote meanwhile, as the kernel counts them."""

    def now() -> tuple[int, int]:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["rchar"]), int(lines["wchar"])

    before = now()
    work()
    after = now()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.slow
def test_ten_times_the_pictures_cost_ten_times_the_bytes(tmp_path: Path) -> None:
    """5,000 against 500: were steps.csv written whole after every picture, it would be a hundred times."""
    for _ in ("made", "found made"):
        few = counted(lambda: attempt(RunFolder(tmp_path / "few"), 500))
        many = counted(lambda: attempt(RunFolder(tmp_path / "many"), 5000))
        for read_or_written in (0, 1):
            assert many[read_or_written] < 12 * few[read_or_written] + 100_000
    assert len(RunFolder(tmp_path / "many").read_steps()) == 5000 * STEPS


def test_an_interrupted_run_makes_what_is_missing_cut_or_without_its_steps(tmp_path: Path) -> None:
    whole, folder = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    attempt(whole, 6)
    assert attempt(folder, 6, dies_at=4) == [0, 1, 2, 3]
    path = folder.image_path(1)
    path.write_bytes(path.read_bytes()[:40])  # cut
    lines = (folder.path / "steps.csv").read_text().splitlines(keepends=True)
    (folder.path / "steps.csv").write_text("".join(lines[:-1]) + "0,3,3,ste")  # a row of the last picture is half
    assert attempt(folder, 6) == [1, 3, 4, 5]
    assert sorted(folder.read_steps(), key=lambda row: (row.prompt, row.step)) == whole.read_steps()
    assert [one["prompts"] for one in folder.record["attempts"]] == [[0, 2], [1, 3, 4, 5]]
    for prompt in range(6):
        assert folder.image_path(prompt).read_bytes() == whole.image_path(prompt).read_bytes()


def test_a_resumed_run_calibrates_on_the_picture_that_it_calibrated_on_before(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert made_by(Painter(dies_at=2), folder, 4).calibrated_on == [0]
    again = made_by(Painter(), folder, 4)
    assert (again.painted, again.calibrated_on) == ([2, 3], [0])
    assert made_by(Painter(), folder, 4).calibrated_on == []  # nothing is missing


def test_what_fp8_cut_is_in_the_record_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder(tmp_path / "run")
    made_by(Painter(overflow={}), folder, 1)
    assert folder.record["products"]["overflow"] == 0
    assert "cut" not in caplog.text
    made_by(Painter(overflow={f"layer{i}": i for i in range(1, 8)}), folder, 2)
    assert folder.record["products"]["overflow"] == 28
    assert folder.record["products"]["overflow_worst"] == {f"layer{i}": i for i in (7, 6, 5, 4, 3)}
    assert folder.record["products"]["layers"] == 9
    assert "28 in 7 of 9 layers" in caplog.text
    made_by(Painter(), RunFolder(tmp_path / "other"), 1)
    assert "products" not in RunFolder(tmp_path / "other").record


def test_messages_are_means_over_the_steps_of_a_kind(tmp_path: Path) -> None:
    """Two steady steps, of which one reduces; a warm-up step gathers three times; a rank alone sends nothing."""
    gather, reduce = Message("all_gather", 2, 4096, True), Message("all_reduce", 4, 100, False)
    sent = [("warmup", {gather: 3}), ("steady", {gather: 1, reduce: 1}), ("steady", {gather: 1})]
    traces = [
        StepTrace(Step(i, kind, kind == "warmup", i), 1.5, Traffic(messages=Counter(messages)))
        for i, (kind, messages) in enumerate(sent)
    ]
    folder = RunFolder(tmp_path / "run")
    assert folder.read_messages() is None
    folder.write_messages(messages_of(Generated(latents=torch.zeros(1), image=None, steps=traces)))
    assert folder.read_messages() == [
        MessageRow("warmup", "all_gather", 2, 4096, True, 3.0),
        MessageRow("steady", "all_gather", 2, 4096, True, 1.0),
        MessageRow("steady", "all_reduce", 4, 100, False, 0.5),
    ]
    attempt(alone := RunFolder(tmp_path / "alone"), 2)
    assert alone.read_messages() == []


@pytest.mark.parametrize(
    "text", ["", "kind,ms\nwarmup,1\n", "kind,operation,ranks,bytes,waits,per_step\nwarmup,all_gather,2\n"]
)
def test_messages_that_are_cut_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "messages.csv").write_text(text)
    with pytest.raises(BrokenFolderError, match="messages.csv is not whole"):
        RunFolder(tmp_path).read_messages()


@pytest.mark.parametrize(("by_rank", "largest"), [([800.0, 1234.5], 1234.5), ([None, None], None)])
def test_every_ranks_peak_is_in_the_record(
    by_rank: list[float | None], largest: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank that needs the most decides which GPU will do."""
    folder = RunFolder(tmp_path)
    folder.update_record(status="running")
    monkeypatch.setattr(generation, "_gathered", lambda _, own: by_rank if own == by_rank[0] else [own])
    monkeypatch.setattr(generation, "peak_memory_mib", lambda device: by_rank[0])
    generation.note_peak_memory(cast(RankPipeline, Painter()), folder)
    assert folder.record["peak_memory_mib_by_rank"] == by_rank
    assert folder.record["peak_memory_mib"] == largest
