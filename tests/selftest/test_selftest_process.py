"""Parts for real: in processes of their own, and on ranks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from otil_exp.links import read_links
from otil_exp.selftest import main, process
from otil_exp.selftest.death import death
from otil_exp.selftest.exchange_time import _times
from otil_exp.selftest.parts import PARTS, Part
from otil_exp.selftest.plan import Finding, LeftOutError, Plan, State
from otil_exp.selftest.process import run_part, try_part
from otil_exp.topology import RankContext, Topology
from ranks import run_ranks

pytestmark = pytest.mark.ranks


def command_line(process: Path) -> bytes:
    with contextlib.suppress(OSError):  # it has ended
        return (process / "cmdline").read_bytes()
    return b""


def fails(plan: Plan) -> Finding:
    raise FloatingPointError("out of order\nmore of it")


def nothing_here(plan: Plan) -> Finding:
    raise LeftOutError("there is no GPU")


def test_a_part_that_raises_is_broken_and_one_that_cannot_be_tried_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("cpu", 2, tmp_path)
    for function, state, sentence in (
        (fails, State.broken, "FloatingPointError: out of order"),
        (nothing_here, State.left_out, "there is no GPU"),
    ):
        monkeypatch.setattr(Part, "function", property(lambda part, function=function: function))
        assert try_part("copies", plan) == Finding(state, sentence)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_a_function(name: str) -> None:
    assert callable(PARTS[name].function)


def test_a_part_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = run_part("machine", Plan("cpu", 2, tmp_path))
    assert found.state is State.fine, found.sentence
    assert "cores: pictures and bytes are exact" in found.sentence
    assert found.figures["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert found.seconds > 0


def test_links_that_are_measured_are_a_file_that_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "links.yaml"
    assert main(["--device", "cpu", "--parts", "collectives", "--links", str(file)]) == 0
    links = read_links(file)
    assert links.measured
    assert {curve.world_size for curve in links.curves} == {2}
    assert links.seconds("all_gather", 1 << 20, ranks=2) > 0
    assert "4,194,304" in capsys.readouterr().out


def test_a_part_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    found = run_part("promises", Plan("cpu", 2, tmp_path), seconds=0.3)
    assert found.state is State.broken
    assert found.sentence.startswith("not done after 0.3 s")
    lines = {path.name: command_line(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    assert not [pid for pid, line in lines.items() if str(tmp_path).encode() in line]


def test_a_part_whose_process_dies_is_broken_and_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_CHILD", "import os; print('no such luck', flush=True); os.kill(os.getpid(), 9)")
    found = run_part("machine", Plan("cpu", 2, tmp_path))
    assert (found.state, found.sentence) == (
        State.broken,
        "its process ended with exit code -9; its last words: no such luck",
    )


def here(rank: int) -> RankContext:
    topology = Topology(world_size=2, split_batch=False)
    return RankContext(topology=topology, rank=rank, device=torch.device("cpu"))


def times_of(rank: int) -> dict[str, float]:
    return _times(here(rank))


def test_the_exchange_is_timed_where_there_are_no_graphs() -> None:
    assert [set(times) for times in run_ranks(2, times_of)] == [{"called"}] * 2


@pytest.mark.usefixtures("fresh_processes")  # it looks for the process of a rank
def test_a_killed_rank_ends_a_run_and_is_named(tmp_path: Path) -> None:
    found = death(Plan("cpu", 2, tmp_path))
    assert found.state is State.fine, found.sentence
    assert found.figures["failed_rank"] == 1
    assert "SIGKILL" in found.figures["error"]


def test_it_starts_without_diffusers_or_hydra() -> None:
    heavy = "{'torch', 'diffusers', 'transformers', 'distrifuser', 'hydra'}"
    code = f"import sys, otil_exp.selftest; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)
