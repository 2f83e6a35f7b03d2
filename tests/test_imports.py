"""Imports run one way (CONTRIBUTING): read from the source, so that a late import counts too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "otil_exp"
ROOMS_CONFIGS = sorted((SOURCE / "methods").glob("*/config.py"))

ABOVE = ("otil_exp.app", "otil_exp.job", "otil_exp.slurm", "otil_exp.launch", "otil_exp.run.", "otil_exp.pipeline")
"""What composes, starts and performs runs."""

LATER = ("otil_exp.cells", "otil_exp.report", "otil_exp.tracking", *ABOVE)
"""What a method on a rank does not know."""

FORBIDDEN = {
    "cells": ("otil_exp.upstream", "otil_exp.rank_unet", "otil_exp.report", "otil_exp.tracking"),
    "methods": ("hydra", "distrifuser", *LATER),
    "rank_unet": ("hydra", "omegaconf", "distrifuser", "otil_exp.upstream", "otil_exp.methods", *LATER),
    "upstream": ("hydra", "omegaconf", "otil_exp.config", "otil_exp.methods", "otil_exp.exchange", *LATER),
    "exchange": (
        *("distrifuser", "diffusers", "hydra", "omegaconf", "otil_exp.config", "otil_exp.methods", "otil_exp.models"),
        *("otil_exp.upstream", "otil_exp.rank_unet", *LATER),
    ),
    "stages": (
        *("distrifuser", "hydra", "omegaconf", "otil_exp.config", "otil_exp.methods", "otil_exp.models"),
        *("otil_exp.exchange", "otil_exp.upstream", "otil_exp.rank_unet", *LATER),
    ),
    "stages/cut.py": ("torch", "diffusers"),
    "stages/tape.py": ("torch", "diffusers"),
    "stages/wiring.py": ("torch", "diffusers"),
    "models": ("hydra", "otil_exp.methods", "otil_exp.upstream", "otil_exp.rank_unet", "otil_exp.exchange", *LATER),
    "metrics": ("torch.distributed", "otil_exp.methods", "otil_exp.upstream", "otil_exp.rank_unet", *LATER),
    "run_folder": (
        *("torch", "hydra", "otil_exp.methods", "otil_exp.metrics", "otil_exp.upstream", "otil_exp.rank_unet"),
        *LATER,
    ),
    "published": ("torch", "hydra", "otil_exp."),
    "links": (
        *("hydra", "diffusers", "otil_exp.methods", "otil_exp.upstream", "otil_exp.rank_unet", "otil_exp.exchange"),
        *LATER,
    ),
    "links/link.py": ("torch", "otil_exp."),
    "links/files.py": ("torch",),
    "links/projection.py": ("torch",),
    "report": ("torch.distributed", "otil_exp.upstream", "otil_exp.rank_unet", *ABOVE),
    "launch": ("otil_exp.run.", "otil_exp.pipeline", "otil_exp.upstream", "otil_exp.methods", "hydra"),
    "run": ("otil_exp.launch", "otil_exp.app", "otil_exp.cells.prepare", "hydra", "otil_exp.upstream"),
    "tracking": (
        "torch",
        "hydra",
        "otil_exp.launch",
        "otil_exp.pipeline",
        "otil_exp.upstream",
        "otil_exp.rank_unet",
        "otil_exp.run.benchmark",
        "otil_exp.run.execution",
        "otil_exp.run.generation",
    ),
    "selftest": (
        *("hydra", "diffusers", "otil_exp.methods", "otil_exp.rank_unet", "otil_exp.upstream", "otil_exp.cells"),
        *(
            "otil_exp.report",
            "otil_exp.tracking",
            "otil_exp.app",
            "otil_exp.job",
            "otil_exp.slurm",
            "otil_exp.pipeline",
        ),
    ),
    "slurm": ("otil_exp.app", "otil_exp.pipeline", "otil_exp.upstream", "otil_exp.rank_unet"),
    "topology.py": ("otil_exp.",),
    "traffic.py": ("otil_exp.",),
    "cuda_graphs.py": ("otil_exp.",),
    "fake_peers.py": ("otil_exp.",),
    "compile_ahead.py": ("hydra", "omegaconf", "distrifuser", "otil_exp.upstream", *LATER),
    "rank_unet/sliced/compile_turn.py": ("diffusers", "otil_exp."),
    "schedule.py": ("torch", "otil_exp."),
    "rank_log.py": ("torch", "otil_exp."),
    "choices.py": ("torch", "otil_exp."),
    "config.py": ("torch", "otil_exp."),
    "schema.py": ("torch", "otil_exp."),
}
"""part of src/otil_exp -> what it may not import (prefixes)."""

EXCEPT = {
    "config.py": ("otil_exp.choices",),
    "schema.py": ("otil_exp.config", "otil_exp.methods.rooms"),
    "fake_peers.py": ("otil_exp.topology",),
    "compile_ahead.py": ("otil_exp.launch.lifetime",),
    "rank_unet/sliced/compile_turn.py": ("otil_exp.topology",),
    "metrics": ("otil_exp.run_folder",),
    "links": ("otil_exp.run_folder",),
}
"""What it may import nevertheless."""

LIGHT = (
    "torch",
    "diffusers",
    "transformers",
    "otil_exp.pipeline",
    "otil_exp.run.",
    "otil_exp.cells",
    "otil_exp.launch",
)


def imports(path: Path, top_level_only: bool = False) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def files(part: str) -> list[Path]:
    place = SOURCE / part
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_run_one_way(part: str) -> None:
    allowed = (f"otil_exp.{part.removesuffix('.py')}", *EXCEPT.get(part, ()))
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in files(part)
        for name in imports(path)
        if name.startswith(FORBIDDEN[part]) and not name.startswith(allowed)
    ]
    assert files(part)
    assert not wrong


def test_only_upstream_knows_distrifuser() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "upstream" not in path.parts and any(name.split(".")[0] == "distrifuser" for name in imports(path))
    ]
    assert not wrong


def users_of(part: str) -> set[str]:
    """Files, outside a part of the source, that import it."""
    return {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if part not in path.relative_to(SOURCE).parts
        and any(f"{name}.".startswith(f"otil_exp.{part}.") for name in imports(path))
    }


def test_only_steps_of_methods_import_upstream() -> None:
    users = users_of("upstream")
    assert users == {"methods/patch_step.py", "methods/context_blocks/step.py", "methods/tensor/step.py"}


def test_of_a_method_only_its_step_knows_the_unet_of_a_rank() -> None:
    inside = {user for user in users_of("rank_unet") if user.startswith("methods/")}
    assert {user for user in inside if not user.endswith("step.py")} == set()
    assert len(inside) > 6


@pytest.mark.parametrize("file", ["methods/rooms.py", *(str(path.relative_to(SOURCE)) for path in ROOMS_CONFIGS)])
def test_what_hydra_composes_on_loads_no_torch(file: str) -> None:
    """Nor anything of the project but its settings."""
    own = ("otil_exp.choices", "otil_exp.config", "otil_exp.methods.selection", "otil_exp.methods.method")
    late = {"otil_exp.methods.method", "otil_exp.methods.method.Method"}  # for the types alone
    found = [name for name in imports(SOURCE / file) if name.startswith(("torch", "otil_exp.", "diffusers"))]
    assert not [name for name in found if not name.startswith(own) and name != "otil_exp.methods"]
    assert not late & set(imports(SOURCE / file, top_level_only=True))


def test_wandb_is_loaded_only_by_those_who_asked_for_it() -> None:
    heavy = {"otil_exp.tracking.wandb_run", "otil_exp.tracking.dashboard"}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(["otil_exp", *path.relative_to(SOURCE).with_suffix("").parts])
        if name not in heavy:
            assert not [i for i in imports(path) if i.split(".")[0] in ("wandb", "wandb_workspaces")], path
            assert heavy.isdisjoint(imports(path, top_level_only=True)), path


def test_the_app_loads_heavy_modules_late() -> None:
    """--help, --cfg and completion do not wait for torch."""
    assert not [name for name in imports(SOURCE / "app.py", top_level_only=True) if name.startswith(LIGHT)]


HEAVY = ("torch", "torchvision", "diffusers", "transformers", "distrifuser", "submitit", "torchmetrics")
"""Libraries that take seconds to load."""


def said_and_loaded(*arguments: str, before: str = "") -> tuple[str, list[str]]:
    """What the app says to a command line, and which heavy libraries it, and Hydra's plugins, really load for that."""
    script = (
        f"import sys; sys.argv = ['otil-exp', *{arguments}]\n{before}\n"
        "from otil_exp.app import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end)\n"
        f"print('loaded', *sorted(set({HEAVY}) & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    *said, loaded = run.stdout.splitlines()
    return "\n".join(said), loaded.split()[1:]


def test_help_loads_no_library_that_takes_seconds() -> None:
    said, loaded = said_and_loaded("--help")
    assert "preset=" in said
    assert loaded == []


def test_a_process_that_refuses_a_cell_or_starts_its_ranks_loads_torch_alone(tmp_path: Path) -> None:
    cell = ("preset=otil", "topology=2gpu_nosplit", "device=cpu", "metrics=shapes", f"output_dir={tmp_path}")
    said, loaded = said_and_loaded(*cell, "height=200")
    assert "use height=192 or height=256" in said
    assert loaded == ["torch"]
    no_ranks = "import otil_exp.job; otil_exp.job.launch = lambda *call, **options: print('starts', call[1], 'ranks')"
    for grid in ((), ("-m",)):
        said, loaded = said_and_loaded(*grid, *cell, before=no_ranks)
        assert "starts 2 ranks" in said
        assert loaded == ["torch"]


FAMILY_SETTINGS = {
    *("sync_mode", "noise_gather", "transmit", "split_scheme", "stale", "stale_layers", "context", "cfg_repair"),
    *("gn_sync", "halves_apart"),
}
METHOD_NAMES = {path.stem for path in (ROOT / "conf" / "preset").glob("*.yaml")} | {"batch_split"}
ROOM_NAMES = {path.parent.name for path in ROOMS_CONFIGS}

UPSTREAM_WORDS = {"full_sync"}
"""Of distrifuser, too, which calls a mode of its layers so."""


def outside_methods() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if "methods" not in path.relative_to(SOURCE).parts]


def compared_words(path: Path) -> set[str]:
    """Words that a module compares something with: by ==, !=, in, not in and match."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.value] if isinstance(node, ast.MatchValue) else []
        constants = [one for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)]
        found |= {one.value for one in constants if isinstance(one.value, str)}
    return found


def test_nobody_outside_asks_which_method_it_is() -> None:
    names = METHOD_NAMES | ROOM_NAMES
    assert {"otil", "silent_layers"} < names
    for path in outside_methods():
        file = str(path.relative_to(SOURCE))
        allowed = UPSTREAM_WORDS if file.startswith("upstream/") else set()
        assert compared_words(path) & names <= allowed, file


def test_nobody_outside_knows_the_settings_of_a_family() -> None:
    configs = tuple(f"otil_exp.methods.{room}" for room in ROOM_NAMES)
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in outside_methods()
        for name in imports(path)
        if name.startswith(configs)
    ]
    for path in outside_methods():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            of_preset = isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "preset"
            if of_preset and node.attr in FAMILY_SETTINGS:
                wrong.append(f"{path.relative_to(SOURCE)} reads preset.{node.attr}")
    assert not wrong
