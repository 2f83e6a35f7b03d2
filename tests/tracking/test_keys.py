"""The table of keys in the docs is the code's."""

from __future__ import annotations

from pathlib import Path

from otil_exp.tracking.keys import KEYS, table

DOCS = Path(__file__).parents[2] / "docs" / "tracking.md"


def test_the_documented_table_is_the_code_s() -> None:
    before, _, after = DOCS.read_text(encoding="utf-8").partition("held to it by a test -->\n")
    assert before
    assert after.partition("\n<!-- /keys -->")[0] == table()


def test_a_family_matches_its_members_alone() -> None:
    kind = next(key for key in KEYS if key.name == "step/ms_<kind>")
    assert kind.matches("step/ms_steady")
    assert not kind.matches("step/ms_slowest")
    picture = next(key for key in KEYS if key.name == "picture/<prompt>")
    assert picture.matches("picture/07")
    assert not picture.matches("picture/x")
