"""What a run is called at W&B, and that nothing secret is part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.metrics.seam import Boundaries
from otil_exp.run_folder.folder import RunFolder
from otil_exp.tracking.facts import run_config, run_id, run_name
from otil_exp.tracking.secrets import redacted, secrets_of

RECORD = {
    "method": "otil",
    "signature": "0123456789ab",
    "started": "2026-03-01T12:00:05+00:00",
    "effective": {"k": 16, "refresh_period": 10},
    "topology": {"name": "4gpu_split", "world_size": 4, "split_batch": True},
}


def begun(grid: Path, signature: str, config: dict[str, object] | None = None, **record: object) -> RunFolder:
    folder = RunFolder(grid / signature)
    folder.write_config({"preset": {"name": "otil"}} | (config or {}))
    folder.update_record(**RECORD | record)
    return folder


def test_a_run_is_named_by_method_topology_and_what_its_method_uses(tmp_path: Path) -> None:
    assert run_name(begun(tmp_path, "a")) == "otil 4gpu_split k16 every10"
    alone = {"effective": {"k": None, "refresh_period": 0}, "topology": {"name": "1gpu", "world_size": 1}}
    assert run_name(begun(tmp_path, "b", method="reference", **alone)) == "reference 1gpu"


def test_runs_that_begin_one_after_the_other_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    first = begun(tmp_path, "a", {"codec": {"quantizer": "fp8"}})
    assert run_name(first) == "otil 4gpu_split k16 every10"
    second = begun(tmp_path, "b", {"codec": {"quantizer": "int8"}})
    assert run_name(second) == "otil 4gpu_split k16 every10 quantizer=int8"


def test_cells_of_a_grid_have_the_names_that_were_found_when_it_was_checked(tmp_path: Path) -> None:
    assert run_name(RunFolder(tmp_path / "a", planned={"name": "otil codec=fp8"})) == "otil codec=fp8"


def test_a_filter_finds_what_ran(tmp_path: Path, typed: Typed) -> None:
    folder, shared = begun(tmp_path, "a"), ("topology=4gpu_split", "warmup_steps=1", "k=k8")
    found = {}
    for name in ("reference", "otil"):
        made = run_config(effective(typed(f"preset={name}", *shared)), folder, Boundaries())
        found[name] = (made["topology"]["world_size"], made["k"]["budget"], made["warmup_steps"])
    assert found == {"reference": (1, 0, None), "otil": (4, 8, 1)}


def test_the_id_is_the_signature_and_the_start_of_the_folder() -> None:
    assert run_id(RECORD) == "0123456789ab-20260301T120005"
    assert run_id(RECORD | {"started": "2026-03-02T12:00:05+00:00"}) != run_id(RECORD)


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "OPENAI_APIKEY",
        "my_secret",
        "GITHUB_PAT",
        "DB_CREDENTIALS",
        "PROXY_AUTH",
        "GH_TOKENS",
        "MYSQL_PWD",
    ],
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert secrets_of({name: "abcdefgh"}) == ["abcdefgh"]


@pytest.mark.parametrize(
    "name",
    [
        "GIT_AUTHOR_NAME",
        "KEYBOARD_LAYOUT",
        "TOKENIZERS_PARALLELISM",
        "AUTHORITY",
        "MONKEY",
        "PWD",
        "OLDPWD",
        "PATH",
        "SSH_AUTH_SOCK",
        "HF_TOKEN_PATH",
        "AUTOKEYS",
        "SECRETARY",
        "PASSENGER",
    ],
)
def test_other_names_that_hold_such_words_hide_nothing(name: str) -> None:
    assert secrets_of({name: "distrifusion"}) == []


def test_values_of_secret_variables_are_replaced_wherever_they_stand() -> None:
    secrets = secrets_of({"WANDB_API_KEY": "abcdefgh1", "HF_TOKEN": "abcdefgh12", "KEYBOARD": "us", "HOME": "/home/me"})
    assert secrets == ["abcdefgh12", "abcdefgh1"]
    nested = {"a": ["x abcdefgh12 y", 3], "abcdefgh1": {"b": "/home/me"}}
    assert redacted(nested, secrets) == {"a": ["x *** y", 3], "***": {"b": "/home/me"}}
