"""The reference run beside a run: same model, size, steps, guidance, scheduler and prompts."""

from __future__ import annotations

import logging
from typing import Any

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.whole import BrokenFolderError

log = logging.getLogger(__name__)

MISSING = (
    "no finished reference run beside this one: run the same command with preset=reference, then this one again, "
    "which only scores it anew"
)


def find_reference(folder: RunFolder) -> RunFolder | None:
    """A finished reference run of the same grid with comparable pictures; None for a reference itself."""
    if folder.is_reference:
        return None
    own = folder.record
    for path in sorted(folder.path.parent.iterdir()):
        beside = RunFolder(path)
        try:
            record = beside.record
        except BrokenFolderError as error:
            log.warning("no reference: %s", error)
            continue
        if not record.get("is_reference") or record.get("picture_key") != own["picture_key"]:
            continue
        if beside.finished and beside.images.exists() and _covers(record, own):
            return beside
    return None


def _covers(reference: dict[str, Any], own: dict[str, Any]) -> bool:
    return all(prompt in reference["prompts"] for prompt in own["prompts"])
