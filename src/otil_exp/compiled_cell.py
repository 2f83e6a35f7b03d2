"""What getting a kind of cell ready takes from the store of graphs, and whether it was ever got ready."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from otil_exp import graph_store
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.graph_store import GraphStore
from otil_exp.rank_unet.graph_key import code_of_graphs
from otil_exp.run_folder.whole import write_text
from otil_exp.topology import RankContext

_log = logging.getLogger(__name__)


@dataclass
class Compiled:
    """What getting ready took from torch.compile, for the record."""

    found: int = 0
    """Graphs that were in the store."""

    made: int = 0
    """Graphs that were compiled."""

    ahead: bool = False
    """Whether another process compiled the silent form meanwhile (otil_exp.compile_ahead): its graphs were found."""


class CompiledCell:
    """A kind of cell on one rank: the cells that have the same graphs. Ranks of a half of the batch have the same, too,
    but for those with a stage of the UNet each, whose list is that of the rank which was ready last.

    Which ones they are, a rank does not know before it has its buffers, so a list of them is kept beside.
    """

    def __init__(self, config: ExperimentConfig, ranks: RankContext) -> None:
        """config: an effective one."""
        folders = graph_store.folders()
        self._store = GraphStore(folders)
        self._lists = [folder / f"{_key(config, ranks)}.cell" for folder in folders]

    @property
    def is_new(self) -> bool:
        """Whether some graph of it has to be compiled, as far as lists tell."""
        for path in self._lists:
            try:
                return not all(self._store.has(key) for key in path.read_text(encoding="utf-8").split())
            except (OSError, UnicodeDecodeError):  # none there, or none that can be read
                continue
        return True

    @contextmanager
    def used(self) -> Iterator[Compiled]:
        """Within it graphs are found in the store, and added to it."""
        compiled = Compiled()
        with graph_store.using(self._store):
            yield compiled
        compiled.found, compiled.made = len(self._store.found), len(self._store.made)
        self._write_list("\n".join(sorted({*self._store.found, *self._store.made})))

    def _write_list(self, keys: str) -> None:
        for path in self._lists:
            try:
                if not (path.exists() and path.read_bytes() == keys.encode()):
                    write_text(path, keys)
            except OSError as error:
                _log.debug("%s cannot be written: %s", path, error)  # as the graphs, of which was said so
                continue
            return


def _key(config: ExperimentConfig, ranks: RankContext) -> str:
    """16 hex digits of what the graphs depend on; steps, budgets and prompts are not among it."""
    plain = to_plain(replace(config, model=replace(config.model, name="", variant=None, revision=None)))
    cell = {name: plain[name] for name in ("preset", "topology", "model", "height", "width", "groupnorm", "engine")}
    where: dict[str, Any] = {
        "code": code_of_graphs(),
        "device": _device(ranks.device),
        "guidance": config.guidance_scale > 1,
        "half": ranks.batch_half,
    }
    return hashlib.sha256(json.dumps(cell | where, sort_keys=True).encode()).hexdigest()[:16]


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"
