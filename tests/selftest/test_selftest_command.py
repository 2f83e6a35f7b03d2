"""What is typed to the self-test, and what it says; the parts are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from otil_exp.selftest import command
from otil_exp.selftest.command import main
from otil_exp.selftest.parts import PARTS
from otil_exp.selftest.plan import Finding, Plan, State

FOUND = {
    "promises": Finding(State.fine, "5 promises kept", {"own": "kept"}, 3.0),
    "machine": Finding(State.fine, "a machine"),
    "copies": Finding(State.left_out, "there is no GPU to copy to"),
    "collectives": Finding(State.slow, "such a link is a network's", {"all_gather, ms by bytes": {"4096": 0.125}}),
    "capture": Finding(State.left_out, "it needs two GPUs"),
    "exchange": Finding(State.fine, "called 900 µs"),
    "death": Finding(State.fine, "the job ended after 2.2 s and named it"),
}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Plan]]:
    """The parts that were tried, and on what; each finds what FOUND has."""
    found: list[tuple[str, Plan]] = []

    def stand_in(name: str, plan: Plan) -> Finding:
        found.append((name, plan))
        return FOUND[name]

    monkeypatch.setattr(command, "run_part", stand_in)
    return found


def test_without_a_device_the_exchange_is_tried_on_the_cpu(
    tried: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    [(name, plan)] = tried
    assert (name, plan.device, plan.ranks) == ("promises", "cpu", 2)
    assert capsys.readouterr().out.endswith("\nfit\n")


def test_a_device_is_tried_as_a_whole_and_all_findings_are_said(
    tried: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--device", "cpu", "--gpus", "4", "--json", str(tmp_path / "new" / "fit.json")]) == 0
    assert [name for name, _ in tried] == list(PARTS)
    assert {plan.ranks for _, plan in tried} == {4}
    said = capsys.readouterr().out
    assert said.endswith("\nfit; slow: collectives; left out: copies, capture\n")
    assert "such a link is a network's" in said
    assert "4,096" in said
    assert "0.125" in said
    written = json.loads((tmp_path / "new" / "fit.json").read_text())
    assert (written["fit"], written["device"], written["world_size"]) == (True, "cpu", 4)
    assert {name: part["state"] for name, part in written["parts"].items()} == {
        name: found.state.value for name, found in FOUND.items()
    }
    assert written["parts"]["collectives"]["figures"] == {"all_gather, ms by bytes": {"4096": 0.125}}


def test_something_broken_is_unfit(
    tried: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FOUND, "death", Finding(State.broken, "the job had not ended"))
    assert main(["--parts", "death,collectives"]) == 1
    assert [name for name, _ in tried] == ["collectives", "death"]
    said = capsys.readouterr().out
    assert said.endswith("\nunfit: death\n")
    assert "the job had not ended" in said


def test_links_that_were_not_measured_are_said_to_be_missing(
    tried: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "links.yaml"
    assert main(["--device", "cpu", "--parts", "collectives", "--links", str(file)]) == 0
    assert "not written" in " ".join(capsys.readouterr().out.split())
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpus", "1"], "--gpus 1: ranks on the CPU are at least 2"),
        (["--parts", "death,nvlink"], "there is no nvlink; use some of promises,machine"),
        (["--device", "cuda", "--gpus", "3"], "--gpus 3: use 1 to 2, the visible GPUs"),
        (["--json", "/proc/no/fit.json"], "/proc/no cannot be written to; name a file elsewhere"),
        (["--json", "/proc"], "--json /proc is a folder: name a file in it, such as /proc/json"),
        (["--device", "cpu", "--links", "/proc"], "--links /proc is a folder: name a file in it, such as /proc/links"),
        (["--links", "a.yaml"], "--links a.yaml: say of what, such as --device cuda"),
        (["--device", "cpu", "--parts", "death", "--links", "a.yaml"], "use --parts death,collectives"),
        (["--device", "tpu"], "choose from 'cpu', 'cuda'"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_starts(
    arguments: list[str],
    sentence: str,
    tried: list[tuple[str, Plan]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not tried


@pytest.mark.parametrize(("visible", "kind", "ranks"), [(1, "shared_gpu", 2), (2, "cuda", 2), (8, "cuda", 8)])
def test_all_visible_gpus_are_tried(
    visible: int, kind: str, ranks: int, tried: list[tuple[str, Plan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert main(["--device", "cuda"]) == 0
    assert {(plan.kind, plan.ranks) for _, plan in tried} == {(kind, ranks)}


def test_no_visible_gpu_is_said(
    tried: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SystemExit):
        main(["--device", "cuda"])
    assert "no GPU is visible; use --device cpu" in capsys.readouterr().err
