"""The dashboard's specification, as it would be sent to W&B."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_run import begun, rows_of

from otil_exp.method_style import NEUTRAL, style_of
from otil_exp.methods.geometry import seams_of
from otil_exp.metrics import registry
from otil_exp.run.cost import cost_metrics
from otil_exp.tracking.dashboard import main, workspace
from otil_exp.tracking.facts import run_config
from otil_exp.tracking.keys import KEYS

METRICS = {
    *cost_metrics(rows_of(0), warm=False),
    *(metric.key for metric in (*registry.PAIRED, *registry.SEAMS_PAIRED, *registry.SEAMS_ALONE)),
}
"""Keys of metrics.json, from the code that writes them."""


@pytest.fixture(scope="module")
def panels() -> dict[str, list[dict[str, Any]]]:
    """Panels by section."""
    spec = json.loads(workspace("me", "otil_exp", {}, prompts=2)._to_model().model_dump_json(by_alias=True))
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: section["panels"] for section in sections}


def test_the_first_comparisons_are_there(panels: dict[str, list[dict[str, Any]]]) -> None:
    pairs = {(p["config"]["xAxis"], p["config"]["yAxis"]) for p in panels["Speed against quality"]}
    for quality in ("ref/psnr", "ref/lpips_alex"):
        assert ("summary:latency/step_ms", f"summary:{quality}") in pairs
    [parallel] = panels["What the choices do"]
    accessors = [column["accessor"] for column in parallel["config"]["columns"]]
    assert {"config:facts.value.effective.k", "config:facts.value.effective.refresh_period"} < set(accessors)
    assert [p["config"]["mediaKeys"][0] for p in panels["Pictures by prompt"]] == ["picture/00", "picture/01"]
    assert {p["config"]["groupBy"] for p in panels["Seams by method"]} == {"facts.value.method"}


def test_every_name_it_shows_is_one_that_is_logged(panels: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    text = json.dumps(panels)
    configs = [panel["config"] for some in panels.values() for panel in some]
    shown = [name for config in configs for name in (*config.get("metrics", []), *config.get("mediaKeys", []))]
    shown += [part.split('"')[0] for part in text.split('"summary:')[1:]]
    unknown = [name for name in shown if name not in METRICS and not any(key.matches(name) for key in KEYS)]
    assert shown
    assert not unknown
    cell = begun(tmp_path)
    config = run_config(cell.effective, cell.folder, seams_of(cell.effective))
    for path in (part.split('"')[0] for part in text.split('"config:')[1:]):
        at: Any = config
        for step in path.replace(".value.", ".", 1).split("."):
            assert step in at, path
            at = at[step]


def test_runs_of_a_method_share_a_colour() -> None:
    methods = {"a": "otil", "b": "guide", "c": "otil", "r": "reference"}
    view = workspace("me", "p", methods, prompts=1, references={"r"})._to_model()
    colours = json.loads(view.model_dump_json(by_alias=True))["spec"]["section"]["customRunColors"]
    assert colours == {
        "a": style_of("otil").colour,
        "b": style_of("guide").colour,
        "c": style_of("otil").colour,
        "r": NEUTRAL,
    }


def test_the_specification_is_printed_without_an_account(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["me/otil_exp", "--spec"]) == 0
    assert json.loads(capsys.readouterr().out)["project"] == "otil_exp"
    assert main(["otil_exp"]) == 1
    assert "ENTITY/PROJECT" in capsys.readouterr().err
