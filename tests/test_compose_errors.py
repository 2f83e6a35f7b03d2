"""What is typed and cannot be composed is one sentence of what to type instead, without a traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from otil_exp import app
from otil_exp.conf_tree import conf_folder
from otil_exp.schema import register_schema


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *typed: str) -> str:
    """What the app, in this process, exits with: Python shows it, and leaves with code 1. No other word of trouble."""
    return refused_and_shown(monkeypatch, capsys, *typed)[0]


def refused_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *typed: str
) -> tuple[str, str]:
    """The same, and what is on stdout."""
    monkeypatch.setattr(sys, "argv", ["otil-exp", *typed])
    GlobalHydra.instance().clear()  # a call that was refused before leaves Hydra as it was
    with pytest.raises(SystemExit) as stopped:
        app.main()
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    assert captured.err == ""
    assert "HYDRA_FULL_ERROR" not in os.environ
    assert isinstance(stopped.value.code, str), captured
    return stopped.value.code, captured.out


SINGLE = [
    (("k=16",), ("k=16: there is no such k; use k16,", "or k.budget=16")),
    (("topology=4",), ("use 4gpu_nosplit or 4gpu_split", "8gpu_split")),
    (("preset=oti",), ("use otil or otil_context",)),
    (("preset=null",), ("preset=null: there is no such preset", "reference")),
    (("experiment=ablation/budge",), ("use ablation/budget",)),
    (
        ("preset=otil", "preset.context.every=2"),
        ("preset.context.every: preset=otil has no", "use it with preset=otil_context"),
    ),
    (("preset.context.every=2",), ("preset=otil_context",)),
    (("foo=1",), ("foo: there is no such setting",)),
    (("+foo=1",), ("foo: there is no such setting",)),
    (("++foo=1", "+bar=2"), ("foo: there is no such setting", "bar: there is no such setting")),
    (("+preset.transmit.scores=l2",), ("preset.transmit.scores: there is no", "did you mean preset.transmit.score")),
    (("preset=balanced", "preset.transmit={zzz: 1}"), ("preset.transmit.zzz: there is no such setting",)),
    (("preset=balanced", "preset.transmit={score: l2}"), ("preset=balanced has no", "preset=guide", "preset=otil")),
    (("prompts.texts=[[a]]",), ("an entry of a list is one value",)),
    (("warmup=3",), ("did you mean warmup_steps",)),
    (("~preset",), ("no value", "use preset= one of ", " balanced,", "reference")),
    (("height=???",), ("height: no value", "height=VALUE")),
    (("height=abc",), ("height=abc: Value 'abc'", "could not be converted to Integer")),
    (("height=${nope}",), ("'nope' not found",)),
    (("scheduler=x",), ("ddim", "euler", "dpmpp")),
    (("name=a [b] c",), ("name=a [b] c: cannot be read", """type quotes""", """'name="a [b] c"'""")),
    (("preset",), ("preset: cannot be read", "key=value")),
    (("preset=otil,guide",), ("--multirun",)),
]

GRIDS = [
    (("preset=glob(zzz*)",), ("preset=glob(zzz*): no cell at all", "preset= one of ", " balanced,")),
    (
        ("preset=otil,otil_context", "preset.context.every=1,2"),
        ("preset=otil has no such setting", "preset=otil_context"),
    ),
    (
        ("experiment=ablation/budget,ablation/score",),
        ("experiment=ablation/budget brings a grid of its own (preset, k.budget)",),
    ),
    (("preset=otil", "+foo=1,2"), ("nothing was started", "foo: there is no such setting")),
    (("k=16,k8",), ("k=16: there is no such k; use k16",)),
    (("preset=choice(otil,oti)", "hydra.job.name=mine"), ("preset=oti: there is no such preset; use otil",)),
    (("height=abc,256",), ("could not be converted to Integer",)),
]


@pytest.mark.parametrize(("typed", "words"), SINGLE)
def test_of_a_cell(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    typed: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    said = refused(monkeypatch, capsys, f"output_dir={tmp_path}", "device=cpu", *typed)
    assert all(word in said for word in words), said
    assert "\n" not in said
    assert "use +" not in said  # Hydra's own advice, which it would then accept and nobody read


@pytest.mark.parametrize(("typed", "words"), GRIDS)
def test_of_a_grid(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    typed: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    said = refused(monkeypatch, capsys, "-m", f"output_dir={tmp_path}", "device=cpu", *typed)
    assert all(word in said for word in words), said
    assert not [path for path in tmp_path.glob("*/*") if path.is_dir()]


def test_who_asks_hydra_for_the_traceback_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra.errors import ConfigCompositionException

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["otil-exp", "foo=1"])
    with pytest.raises(ConfigCompositionException):
        app.main()
    assert os.environ["HYDRA_FULL_ERROR"] == "1"


@pytest.mark.parametrize(
    ("typed", "launcher"),
    [
        ((), "LocalLauncher"),
        (("experiment=mine",), "SlurmLauncher"),
        (("experiment=mine", "hydra/launcher=local"), "LocalLauncher"),
    ],
)
def test_an_experiment_may_choose_the_launcher(tmp_path: Path, typed: tuple[str, ...], launcher: str) -> None:
    """A file of the user's, in a folder of theirs."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /hydra/launcher: slurm\n"
    )
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        search = f"hydra.searchpath=[file://{tmp_path}]"
        config = compose("config", [search, *typed], return_hydra_config=True)
    assert config.hydra.launcher._target_.endswith(f".{launcher}")
