"""Files of links: what is written is read, what ships is whole, and a file that holds none is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from otil_exp.links import Curve, Links, read_links, shipped, write_links

MEASURED = Links(
    name="node 7",
    source="2 ranks on a GPU",
    date="2026-11-30",
    measured=True,
    curves=(
        Curve("all_gather", 2, ((4096, 7e-05), (16384, 1e-05))),
        Curve("point_to_point", 2, ((4096, 6.25e-05), (16384, 0.5))),
    ),
    host_s=4e-05,
)

GATHER = "{operation: all_gather, world_size: 2, points: [[0, 0.1], [1, 0.2]]}"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_links(MEASURED, tmp_path / "new" / "links.yaml")
    assert read_links(tmp_path / "new" / "links.yaml") == MEASURED


def test_json_is_read_too(tmp_path: Path) -> None:
    content = {
        "name": "n",
        "source": "s",
        "date": "d",
        "measured": False,
        "curves": [{"operation": "all_gather", "world_size": 2, "points": [[0, 1e-05], [1000, 2e-05]]}],
    }
    (tmp_path / "links.json").write_text(json.dumps(content))
    assert read_links(tmp_path / "links.json").seconds("all_gather", 500, 2) == pytest.approx(1.5e-05)


def test_bytes_may_have_an_exponent(tmp_path: Path) -> None:
    """YAML takes 1e6 for a word."""
    curve = GATHER.replace("[1, 0.2]", "[1e6, 2e-1]")
    (tmp_path / "links.yaml").write_text(f"name: n\nsource: s\ndate: d\nmeasured: false\ncurves: [{curve}]\n")
    assert read_links(tmp_path / "links.yaml").curves[0].points == ((0, 0.1), (1_000_000, 0.2))


@pytest.mark.parametrize("name", shipped())
def test_what_ships_has_a_source_and_takes_longer_for_more(name: str) -> None:
    links = read_links(name)
    assert links.name == name
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", links.date)
    assert len(links.source) > 20
    for ranks in (2, 4, 8):
        times = [links.seconds("all_gather", size, ranks) for size in (2**22, 2**26, 2**30)]
        assert times == sorted(times)
        assert min(links.seconds("all_gather", size, ranks) for size in (0, 4096, 2**20)) > 0


def test_a_name_that_nobody_has_says_which_ship(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use .*nvlink"):
        read_links("pcie9")
    with pytest.raises(ValueError, match="otil-selftest --device cuda --links FILE"):
        read_links(tmp_path / "links.yaml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no set of named values"),
        ("- 1", "no set of named values"),
        ("{", "no YAML or JSON"),
        ("name: n\nsource: s\ndate: d\nmeasured: true\n", "'curves' is not said"),
        ("name: n\nsource: s\ndate: d\nmeasured: true\ncurves: []\n", "no curves"),
        ("name: n\nspeed: 3\n", "speed is no field of Links"),
        (
            "name: n\nsource: s\ndate: d\nmeasured: true\n"
            "curves: [{operation: all_gather, world_size: 2, points: [[0, x], [1, 1]]}]\n",
            "could not convert",
        ),
        *(
            (f"name: n\nsource: s\ndate: d\nmeasured: {measured}\nhost_s: {host_s}\ncurves: [{curve}]\n", reason)
            for measured, host_s, curve, reason in (
                ("'no'", 0, GATHER, "use true or false"),
                ("true", ".nan", GATHER, "host_s=nan"),
                ("true", ".inf", GATHER, "host_s=inf"),
                ("true", 0, f"{GATHER}, {GATHER}", "two curves of all_gather among 2 ranks"),
                ("true", 0, GATHER.replace("[1,", "[0.5,"), "0.5 is no whole number"),
                ("true", 0, GATHER.replace("[1,", "[.inf,"), "inf is no whole number"),
                ("true", 0, GATHER.replace("size: 2", "size: 2.5"), "2.5 is no whole number"),
            )
        ),
    ],
)
def test_a_file_that_holds_no_links_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "links.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"links.yaml: .*{reason}"):
        read_links(tmp_path / "links.yaml")
