"""What the README tells a user to type works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from composing import composed_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    page.name: page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
COMMANDS = sorted(
    {
        line.split("#")[0].strip()
        for page in PAGES.values()
        for line in re.findall(r"^(?:\.venv/bin/)?otil-exp .+$", page, re.M)
    }
)
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGES["from_python.md"], re.S)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_composes(command: str) -> None:
    words = [word for word in shlex.split(command)[1:] if not word.startswith("-") and word != "job"]
    choices = [word.partition(",")[0] for word in words]  # the first cell of a grid
    assert composed_of(*choices).preset.name


def test_there_are_commands_and_a_snippet_to_try() -> None:
    assert len(COMMANDS) >= 5
    assert len(SNIPPETS) == 2


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_links_between_pages_lead_somewhere() -> None:
    folders = {"README.md": ROOT} | {name: ROOT / "docs" for name in PAGES if name != "README.md"}
    missing = [
        f"{name}: {link}"
        for name, page in PAGES.items()
        for link in re.findall(r"\]\(([^)#:]+)\)", page)
        if not (folders[name] / link).exists()
    ]
    assert not missing


def test_the_readme_leads_to_every_page() -> None:
    assert [name for name in PAGES if name != "README.md" and f"](docs/{name})" not in README] == []


def test_the_python_way_in_runs_as_printed(tmp_path: Path) -> None:
    code = (
        SNIPPETS[0]
        .replace("num_inference_steps=20", "num_inference_steps=2")
        .replace('"device=cpu"', '"device=cpu", "warmup_steps=0"')
    )
    check = "\nassert picture.image.shape == (256, 256, 3)\nassert len(picture.steps) == 2\n"
    done = subprocess.run(
        [sys.executable, "-c", code + check], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
