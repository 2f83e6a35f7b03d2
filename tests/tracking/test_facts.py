"""What a run is called at W&B, and that nothing secret is part of it."""

from __future__ import annotations

from otil_exp.tracking.facts import run_id, run_name
from otil_exp.tracking.secrets import redacted, secrets_of

RECORD = {
    "method": "otil",
    "signature": "0123456789ab",
    "started": "2026-03-01T12:00:05+00:00",
    "effective": {"k": 16, "refresh_period": 10},
    "topology": {"world_size": 4, "split_batch": True},
}


def test_a_run_is_named_by_method_topology_and_what_its_method_uses() -> None:
    assert run_name(RECORD) == "otil 4gpu_split k16 every10"
    alone = RECORD | {"method": "reference", "effective": {"k": None, "refresh_period": 0}}
    assert run_name(alone | {"topology": {"world_size": 1, "split_batch": False}}) == "reference 1gpu"


def test_the_id_is_the_signature_and_the_start_of_the_folder() -> None:
    assert run_id(RECORD) == "0123456789ab-20260301T120005"
    assert run_id(RECORD | {"started": "2026-03-02T12:00:05+00:00"}) != run_id(RECORD)


def test_values_of_secret_variables_are_replaced_wherever_they_stand() -> None:
    secrets = secrets_of({"WANDB_API_KEY": "abcdefgh1", "HF_TOKEN": "abcdefgh12", "KEYBOARD": "us", "HOME": "/home/me"})
    assert secrets == ["abcdefgh12", "abcdefgh1"]
    nested = {"a": ["x abcdefgh12 y", 3], "abcdefgh1": {"b": "/home/me"}}
    assert redacted(nested, secrets) == {"a": ["x *** y", 3], "***": {"b": "/home/me"}}
