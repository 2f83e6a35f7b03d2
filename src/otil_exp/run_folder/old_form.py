"""Run folders of version 0.1: their signatures were made another way, so that none of them is found again."""

from __future__ import annotations

import json
from pathlib import Path

from otil_exp.run_folder.signature import FORM


def old_folders(grid: Path) -> list[Path]:
    """Finished runs of a grid's folder whose signature is of an older form than today's."""
    return sorted(record.parent for record in grid.glob("*/record.json") if _is_old(record))


def old_form_sentence(grid: Path) -> str | None:
    """What to tell a user about them, once a command; None where there are none."""
    old = old_folders(grid)
    if not old:
        return None
    return (
        f"{grid} holds {len(old)} finished run(s) of an older form, {old[0].name} among them: version 0.2 names run "
        "folders another way, so it makes these cells again and leaves the old folders as they are. Delete them, or "
        "use another name=, if you do not want both"
    )


def _is_old(record: Path) -> bool:
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # whoever reads the run says what is wrong with it
    return isinstance(content, dict) and content.get("status") == "done" and content.get("form", 1) < FORM
