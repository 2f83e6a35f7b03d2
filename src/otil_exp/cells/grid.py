"""The cells of a grid: checked together, equal ones run once, and those that can share ranks packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

from otil_exp.cells.prepare import prepare
from otil_exp.methods.geometry import is_reference
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.naming import names_in_grid
from otil_exp.run_folder.old_form import old_form_sentence
from otil_exp.topology import resolve_device


@dataclass(frozen=True)
class Member:
    """A distinct cell of a grid."""

    cell: Cell

    numbers: list[int]
    """Which points of the grid it is, from 0."""

    names: list[str]
    """What was typed for each of them."""

    @property
    def title(self) -> str:
        """The cell as the user named it, and what came out as the same one."""
        first, *others = (f"#{number} {name}".rstrip() for number, name in zip(self.numbers, self.names, strict=True))
        return first + (f" (the same run: {'; '.join(others)})" if others else "")


def old_runs(members: Sequence[Member]) -> list[str]:
    """What to tell the user of finished runs whose folders are of an older form, a sentence a grid."""
    grids = dict.fromkeys(member.cell.folder.path.parent for member in members)
    return [sentence for grid in grids if (sentence := old_form_sentence(grid)) is not None]


def check_grid(
    configs: Sequence[DictConfig],
    names: Sequence[str],
    device_for: Callable[[str, int], str] = resolve_device,
    check: Callable[[Cell], object] = lambda cell: None,
) -> list[Member]:
    """The distinct cells of a grid, references first: the others are compared with them.

    configs: composed cells; names: what was typed for each; device_for: see `prepare`; check: refuses cells that the
    launcher cannot run. Raises ValueError with all mistakes of the grid, each once.
    """
    members: dict[str, Member] = {}
    mistakes: dict[str, list[str]] = {}
    for number, (config, name) in enumerate(zip(configs, names, strict=True)):
        try:
            cell = prepare(config, device_for)
            check(cell)
        except (ValueError, FileNotFoundError) as error:
            mistakes.setdefault(str(error), []).append(name)
            continue
        member = members.setdefault(str(cell.folder.path), Member(cell, [], []))
        member.numbers.append(number)
        member.names.append(name)
    if mistakes:
        said = (f"{_whose(wrong, len(names))}: {sentence}" for sentence, wrong in mistakes.items())
        raise ValueError("nothing was started:\n" + "\n".join(said))
    folders = [member.cell.folder for member in members.values()]
    for folder, name in zip(folders, names_in_grid(folders), strict=True):
        folder.planned["name"] = name
    return sorted(members.values(), key=lambda member: not is_reference(member.cell.effective))


def _whose(wrong: Sequence[str], cells: int) -> str:
    """The cells that share a mistake, in words: what was typed for each, or that it is in all of them."""
    return f"all {cells} cells" if len(wrong) == cells > 1 else "; ".join(wrong)


def packed(members: Sequence[Member], size: int) -> list[list[Member]]:
    """Members in their order, up to `size` that can share ranks and weights together.

    They are of one topology, model, engine, device and collective time-out.
    """
    packs: dict[str, list[list[Member]]] = {}
    for member in members:
        config = member.cell.effective
        key = str((config.topology, config.model, config.engine, config.device, config.launch))
        alike = packs.setdefault(key, [[]])
        if len(alike[-1]) == size:
            alike.append([])
        alike[-1].append(member)
    return [pack for alike in packs.values() for pack in alike]
