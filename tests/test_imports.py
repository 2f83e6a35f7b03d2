"""Imports run one way (CONTRIBUTING): read from the source, so that a late import counts too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "otil_exp"

FORBIDDEN = {
    "exchange": (
        "distrifuser",
        "diffusers",
        "hydra",
        "omegaconf",
        "otil_exp.choices",
        "otil_exp.config",
        "otil_exp.upstream",
        "otil_exp.run",
    ),
    "upstream": ("hydra", "otil_exp.exchange", "otil_exp.run", "otil_exp.pipeline", "otil_exp.launch"),
    "metrics": ("torch.distributed", "otil_exp.run", "otil_exp.pipeline", "otil_exp.upstream", "otil_exp.launch"),
    "run_folder": (
        "torch",
        "hydra",
        "otil_exp.run.",
        "otil_exp.metrics",
        "otil_exp.report",
        "otil_exp.tracking",
        "otil_exp.pipeline",
    ),
    "report": ("torch.distributed", "otil_exp.pipeline", "otil_exp.upstream", "otil_exp.launch"),
    "launch": ("otil_exp.run", "otil_exp.pipeline", "otil_exp.upstream", "hydra"),
    "run": ("otil_exp.launch", "otil_exp.app", "otil_exp.cells.prepare", "hydra"),
    "tracking": (
        "torch",
        "hydra",
        "otil_exp.launch",
        "otil_exp.pipeline",
        "otil_exp.upstream",
        "otil_exp.run.benchmark",
        "otil_exp.run.execution",
        "otil_exp.run.generation",
    ),
    "slurm": ("otil_exp.app", "otil_exp.pipeline", "otil_exp.upstream"),
    "topology.py": ("otil_exp.",),
    "traffic.py": ("otil_exp.",),
    "cuda_graphs.py": ("otil_exp.",),
    "rank_log.py": ("torch", "otil_exp."),
    "choices.py": ("torch", "otil_exp."),
    "config.py": ("torch", "otil_exp."),
}
"""part of src/otil_exp -> what it may not import (prefixes)."""

EXCEPT = {"config.py": ("otil_exp.choices",)}
"""What it may import nevertheless."""

LIGHT = (
    "torch",
    "diffusers",
    "transformers",
    "otil_exp.pipeline",
    "otil_exp.run",
    "otil_exp.cells.prepare",
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


def test_only_the_pipeline_imports_upstream() -> None:
    users = {
        path.name
        for path in SOURCE.rglob("*.py")
        if "upstream" not in path.parts and any(name.startswith("otil_exp.upstream") for name in imports(path))
    }
    assert users == {"pipeline.py"}


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
