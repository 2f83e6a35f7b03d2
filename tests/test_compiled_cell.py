"""Which kinds of cell were got ready before, and what getting one ready took."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from composing import Typed
from otil_exp import compiled_cell, graph_store
from otil_exp.cells.normal_form import effective
from otil_exp.compiled_cell import Compiled, CompiledCell
from otil_exp.config import ExperimentConfig
from otil_exp.rank_unet import graph_key
from otil_exp.topology import single_rank
from places import place_without_peers

CPU = torch.device("cpu")


@pytest.fixture
def config(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentConfig:
    monkeypatch.setenv(graph_store.VARIABLE, str(tmp_path / "graphs"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "machine"))
    return effective(typed("preset=otil", "engine=compiled"))


def get_ready(config: ExperimentConfig, made: str = "", found: str = "") -> tuple[bool, Compiled]:
    """Whether the cell was new, and what it took; made, found: keys, a letter each."""
    cell = CompiledCell(config, single_rank(CPU))
    is_new = cell.is_new
    with cell.used() as compiled:
        store = graph_store.current()
        assert store is not None
        for key in made:
            store.save(key, lambda path: path.touch())
        store.made += made
        store.found += found
    return is_new, compiled


def test_a_cell_is_new_until_all_its_graphs_are_there(config: ExperimentConfig, tmp_path: Path) -> None:
    assert get_ready(config, made="ab") == (True, Compiled(found=0, made=2))
    assert get_ready(config, found="ab") == (False, Compiled(found=2, made=0))
    (tmp_path / "graphs" / "b.graph").unlink()
    assert get_ready(config, found="a", made="b") == (True, Compiled(found=1, made=1))
    assert not CompiledCell(config, single_rank(CPU)).is_new


def test_a_cell_whose_graphs_others_made_is_new_once(config: ExperimentConfig, typed: Typed) -> None:
    get_ready(config, made="ab")
    other = effective(typed("preset=otil", "engine=compiled", "height=320"))
    assert get_ready(other, found="ab")[0]
    assert not get_ready(other, found="ab")[0]


@pytest.mark.parametrize("folder", ["", "a file", "x" * 300])
def test_without_a_folder_of_all_machines_the_machines_own_has_the_list(
    config: ExperimentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    monkeypatch.setenv(graph_store.VARIABLE, folder)
    assert get_ready(config, made="ab")[0]
    assert not get_ready(config, found="ab")[0]
    assert len(list((tmp_path / "machine" / "otil_exp").glob("*.cell"))) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a\0b", b"../../b", 5000 * b"a"])
def test_a_list_that_something_else_wrote_is_written_anew(
    config: ExperimentConfig, tmp_path: Path, content: bytes
) -> None:
    get_ready(config, made="ab")
    (path,) = (tmp_path / "graphs").glob("*.cell")
    path.write_bytes(content)
    assert get_ready(config, found="ab")[0]
    assert path.read_text(encoding="utf-8") == "a\nb"
    assert not get_ready(config, found="ab")[0]


def test_with_other_code_a_cell_is_new(config: ExperimentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its graphs have other keys then, though those of before are there."""
    get_ready(config, made="ab")
    monkeypatch.setattr(graph_key, "_sources", lambda: "edited")
    assert CompiledCell(config, single_rank(CPU)).is_new


def test_a_cell_that_fails_is_new_still(config: ExperimentConfig) -> None:
    with pytest.raises(ZeroDivisionError), CompiledCell(config, single_rank(CPU)).used():
        raise ZeroDivisionError
    assert CompiledCell(config, single_rank(CPU)).is_new


@pytest.mark.parametrize(
    ("typed_else", "alike"),
    [
        (("num_inference_steps=7", "k=k8", "refresh=never", "warmup_steps=2", "seed=3"), True),
        (("height=320",), False),
        (("preset.gn_sync=false",), False),
        (("topology=2gpu_nosplit",), False),
        (("engine.products=fp8",), False),
        (("guidance_scale=4",), True),
    ],
)
def test_cells_whose_graphs_are_the_same_share_a_list(typed: Typed, typed_else: tuple[str, ...], alike: bool) -> None:
    one, other = (
        compiled_cell._key(effective(typed("preset=otil", "engine=compiled", *overrides)), single_rank(CPU))
        for overrides in ((), typed_else)
    )
    assert (one == other) == alike


def test_the_ranks_of_a_half_share_a_list(config: ExperimentConfig) -> None:
    cells = [CompiledCell(config, place_without_peers(rank, 4, split_batch=True)) for rank in range(4)]
    names = [cell._lists[0].name for cell in cells]
    assert names[0] == names[1] != names[2] == names[3]
