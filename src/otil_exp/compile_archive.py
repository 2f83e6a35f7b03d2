"""What torch.compile made of a kind of cell, in one file: found again on another machine, and after /tmp was emptied.

PyTorch keeps what it compiled in a folder of the machine (TORCHINDUCTOR_CACHE_DIR), thousands of small files by default
below /tmp. An archive is the same as one file, below ~/.cache, which nodes of a cluster share. It holds what Inductor
makes of a graph, and kernels of a GPU; those of a CPU are built from it again. Dynamo still reads the UNet.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.compiler._cache import CacheArtifactManager

from otil_exp.compile_cache import compiler_folder
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.run_folder.whole import write_whole
from otil_exp.topology import RankContext

VARIABLE = "OTIL_EXP_COMPILED"
"""Names the folder of the archives; empty: none are read or written."""

KEPT = 32
"""Archives that a folder keeps, those that were used last."""

_log = logging.getLogger(__name__)


@dataclass
class Compiled:
    """What getting ready took from torch.compile, for the record."""

    found: int = 0
    """Graphs whose code was there."""

    made: int = 0
    """Graphs that were compiled."""

    archive: str | None = None
    """read, written, or None: neither was needed."""

    ahead: bool = False
    """Whether another process compiled the silent form meanwhile (otil_exp.compile_ahead): its graphs were found."""


class CompileArchive:
    """The archive of one cell on one rank. Ranks of the same half of the batch have the same graphs and one archive."""

    def __init__(self, config: ExperimentConfig, ranks: RankContext) -> None:
        """config: an effective one."""
        folder = _folder()
        name = f"{_key(config, ranks)}.bin"
        self._path = None if folder is None else folder / name
        self._note = Path(compiler_folder(), f"otil_exp-{name}")  # which archive this machine's cache has
        self._writes = ranks.slice_index == 0
        self._broken = False

    @property
    def is_new(self) -> bool:
        """Whether no machine has compiled such a cell; not known, so False, where no archives are kept or can be."""
        try:
            return self._path is not None and not self._path.exists()
        except OSError:
            return False

    @contextmanager
    def used(self) -> Iterator[Compiled]:
        """Within it everything is compiled: what the archive has is found, what is new is in it afterwards."""
        compiled = Compiled()
        with CacheArtifactManager.with_fresh_cache():
            if self._read():
                compiled.archive = "read"
            found, made = _counts()
            yield compiled
            now_found, now_made = _counts()
            compiled.found, compiled.made = now_found - found, now_made - made
            if self._write(compiled):
                compiled.archive = "written"

    def _read(self) -> bool:
        """Bring the archive into this machine's cache, unless it is there."""
        if self._path is None:
            return False
        try:
            if not self._path.exists() or self._noted() == self._stamp():
                return False
            if torch.compiler.load_cache_artifacts(self._path.read_bytes()) is None:
                raise ValueError("it is no archive of this version of PyTorch")
        except Exception as error:  # whatever is wrong with it, what it holds can be compiled again
            self._broken = True
            _log.warning("%s cannot be read, and what this machine lacks is compiled again: %s", self._path, error)
            return False
        with suppress(OSError):  # of somebody else's archive, or on a full disk: it is only read once more
            self._note_stamp()
            os.utime(self._path)
        return True

    def _write(self, compiled: Compiled) -> bool:
        """Write the archive where it lacks something; whether it was written."""
        if self._path is None or not self._writes:
            return False
        try:
            if not (compiled.made or self._broken or not self._path.exists()):
                return False
            artifacts = torch.compiler.save_cache_artifacts()
            if artifacts is None:  # nothing went through Inductor
                return False
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, lambda beside: beside.write_bytes(artifacts[0]))
            self._note_stamp()
            for old in sorted(self._path.parent.glob("*.bin"), key=lambda path: -path.stat().st_mtime)[KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("what was compiled is kept on this machine alone: %s", error)
            return False
        return True

    def _stamp(self) -> str:
        assert self._path is not None
        status = self._path.stat()
        return f"{status.st_size} {status.st_ino}"

    def _noted(self) -> str | None:
        return self._note.read_text(encoding="utf-8") if self._note.exists() else None

    def _note_stamp(self) -> None:
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(self._stamp(), encoding="utf-8")


def _folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named is None:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otil_exp" / "compiled"
    return Path(os.path.expanduser(named)) if named else None  # Path's own fails for a user that is not there


def _key(config: ExperimentConfig, ranks: RankContext) -> str:
    """16 hex digits of what the graphs depend on; steps, budgets and prompts are not among it."""
    plain = to_plain(replace(config, model=replace(config.model, name="", variant=None, revision=None)))
    cell = {name: plain[name] for name in ("preset", "topology", "model", "height", "width", "groupnorm", "engine")}
    where: dict[str, Any] = {
        "torch": torch.__version__,
        "device": _device(ranks.device),
        "guidance": config.guidance_scale > 1,
        "half": ranks.batch_half,
    }
    return hashlib.sha256(json.dumps(cell | where, sort_keys=True).encode()).hexdigest()[:16]


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"


def _counts() -> tuple[int, int]:
    """Graphs that Inductor found in its cache, and that it compiled, in this process so far."""
    counted = counters["inductor"]
    return counted["fxgraph_cache_hit"], counted["fxgraph_cache_miss"] + counted["fxgraph_cache_bypass"]
