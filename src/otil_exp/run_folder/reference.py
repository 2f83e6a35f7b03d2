"""The reference run beside a run: same model, size, steps, guidance, scheduler and prompts."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.whole import BrokenFolderError

log = logging.getLogger(__name__)

MISSING = (
    "no finished reference run beside this one: run the same command with preset=reference, then this one again, "
    "which only scores it anew"
)

_PromptKey = tuple[int, str, int]


@dataclass(frozen=True)
class _Reference:
    """A finished reference run."""

    folder: RunFolder
    prompts: frozenset[_PromptKey]
    quantised: bool
    """Whether its products were in fp8."""

    pictures: dict[int, bool] = field(default_factory=dict)
    """By index of the prompt: whether its picture was found whole; it is looked for once."""

    def covers(self, prompts: frozenset[_PromptKey]) -> bool:
        return prompts <= self.prompts and all(self._has(index) for index, _, _ in prompts)

    def _has(self, index: int) -> bool:
        if index not in self.pictures:
            self.pictures[index] = self.folder.has_image(index)
        return self.pictures[index]


class References:
    """The finished reference runs of grids; a grid's folder is read once, however many of its cells are asked about.

    known: folders that were read already, as they were then.
    """

    def __init__(self, known: Iterable[RunFolder] = ()) -> None:
        self._known = {folder.path: folder for folder in known}
        self._grids: dict[Path, dict[str, list[_Reference]]] = {}

    def of(self, folder: RunFolder) -> RunFolder | None:
        """A finished reference run of the same grid with comparable pictures; None for a reference itself.

        Raises BrokenFolderError where the record of the run itself is not whole.
        """
        own = folder.record
        if own["is_reference"]:
            return None
        wanted = prompt_keys(own["prompts"])
        beside = self._in(folder.path.parent).get(own["picture_key"], [])
        return next((reference.folder for reference in beside if reference.covers(wanted)), None)

    def forget(self, grid: Path) -> None:
        """Look again at a grid's folder: a reference run of it has ended."""
        self._grids.pop(grid, None)

    def _in(self, grid: Path) -> dict[str, list[_Reference]]:
        if grid not in self._grids:
            found: dict[str, list[_Reference]] = defaultdict(list)
            for path in sorted(grid.glob("*/record.json")):
                folder = self._known.get(path.parent) or RunFolder(path.parent)
                try:
                    record = folder.record
                    if record.get("is_reference") and record.get("status") == "done":
                        prompts = prompt_keys(record["prompts"])
                        found[record["picture_key"]].append(_Reference(folder, prompts, "products" in record))
                except BrokenFolderError as error:
                    log.warning("not looked at as a reference: %s", error)
            for references in found.values():  # what fp8 costs is seen only beside pictures made without
                references.sort(key=lambda one: one.quantised)
            self._grids[grid] = found
        return self._grids[grid]


def find_reference(folder: RunFolder) -> RunFolder | None:
    """The reference run of one run; for the cells of a grid ask one `References`."""
    return References().of(folder)


def prompt_keys(prompts: list[dict[str, Any]]) -> frozenset[_PromptKey]:
    """What makes prompts of a record the same ones: index, text and seed."""
    return frozenset((prompt["index"], prompt["text"], prompt["seed"]) for prompt in prompts)
