"""What one machine compiled, another one finds: counted in graphs, by PyTorch's own counters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from composing import Typed
from otil_exp import compile_archive
from otil_exp.cells.normal_form import effective
from otil_exp.compile_archive import CompileArchive, Compiled
from otil_exp.topology import single_rank
from places import place_without_peers

CPU = torch.device("cpu")
ONE_GRAPH = torch._inductor.config.patch(compile_threads=1, cpp_cache_precompile_headers=False)
"""What Inductor makes ready for many graphs takes longer than one."""


@pytest.fixture
def started_on(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Compiled]:
    """Compile one graph. A machine is a folder of Inductor's cache here, a process what torch.compiler.reset leaves."""
    config = effective(typed("preset=reference", "engine=compiled"))

    def started(machine: str) -> Compiled:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / machine))
        torch.compiler.reset()
        call = torch.compile(lambda x: (x.sin() + 1).exp(), fullgraph=True, dynamic=False)
        with ONE_GRAPH, CompileArchive(config, single_rank(CPU)).used() as compiled:
            torch.testing.assert_close(call(torch.zeros(3)), torch.full((3,), torch.e))
        return compiled

    return started


def test_a_graph_is_compiled_on_the_first_machine_only(
    started_on: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = tmp_path / "archives"
    monkeypatch.setenv(compile_archive.VARIABLE, str(kept))
    assert started_on("first") == Compiled(found=0, made=1, archive="written")
    assert started_on("first") == Compiled(found=1, made=0, archive=None)
    assert started_on("second") == Compiled(found=1, made=0, archive="read")
    assert started_on("second") == Compiled(found=1, made=0, archive=None)
    (archive,) = kept.iterdir()
    archive.write_bytes(archive.read_bytes()[:100])
    assert started_on("third") == Compiled(found=0, made=1, archive="written")
    assert "is compiled again" in caplog.text
    assert started_on("fourth").archive == "read"
    archive.write_bytes(archive.read_bytes()[:100])
    assert started_on("fourth") == Compiled(found=1, made=0, archive="written")  # of what the machine has
    caplog.clear()
    with monkeypatch.context() as others:  # an archive of another user, a full disk
        others.setattr(os, "utime", refuse)
        others.setattr(CompileArchive, "_note_stamp", refuse)
        assert started_on("fifth") == Compiled(found=1, made=0, archive="read")
    assert compile_archive.__name__ not in caplog.text


def refuse(*_: object) -> None:
    raise PermissionError


@pytest.mark.parametrize("folder", ["", "a file", "~nobody_here/archives", "x" * 300])
def test_a_folder_that_cannot_be_costs_the_archive_alone(
    started_on: Callable[[str], Compiled],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    folder: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()
    Path("~nobody_here").touch()
    monkeypatch.setenv(compile_archive.VARIABLE, folder)
    assert started_on("machine") == Compiled(found=0, made=1, archive=None)
    assert ("kept on this machine alone" in caplog.text) == bool(folder)


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
def test_cells_whose_graphs_are_the_same_share_an_archive(
    typed: Typed, typed_else: tuple[str, ...], alike: bool
) -> None:
    one, other = (
        compile_archive._key(effective(typed("preset=otil", "engine=compiled", *overrides)), single_rank(CPU))
        for overrides in ((), typed_else)
    )
    assert (one == other) == alike


def test_the_ranks_of_a_half_share_an_archive_which_one_of_them_writes(typed: Typed) -> None:
    config = effective(typed("preset=otil", "engine=compiled"))
    archives = [CompileArchive(config, place_without_peers(rank, 4, split_batch=True)) for rank in range(4)]
    keys = [archive._note.name for archive in archives]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert [archive._writes for archive in archives] == [True, False, True, False]
