"""The folder between us and the ranks that we start: the call goes in, its result comes back."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otil_exp.launch.failure import RankFailure
from otil_exp.launch.narrow_link import Hub
from otil_exp.launch.rank import DUTY, RESULT, Duty

# Imports from where the parent imports, as multiprocessing's spawn does, but without running the parent's main script.
_START_RANK = "import sys; sys.path[:] = sys.argv[2:]; from pathlib import Path; " + (
    "from otil_exp.launch.rank import main; main(Path(sys.argv[1]))"
)


def hand_over(
    folder: Path,
    function: Callable[..., Any],
    args: tuple[object, ...],
    *,
    parent: int | None,
    log_dir: Path | None,
    threads: int | None,
    hub: Hub | None = None,
) -> list[str]:
    """Write down what the ranks are to call; returns the command of a rank.

    Raises ValueError for a function of a notebook or an interactive session.
    """
    duty = Duty(
        call=pickle.dumps((_importable(function), args)),
        parent=parent,
        argv=sys.argv,
        log_dir=log_dir,
        log_level=logging.getLogger().level,
        threads=threads,
        hub=hub,
    )
    (folder / DUTY).write_bytes(pickle.dumps(duty))
    return [sys.executable, "-c", _START_RANK, str(folder), *sys.path]


def result_of(folder: Path) -> Any:
    """What rank 0 returned. Raises RankFailure if it ended without."""
    if not (folder / RESULT).exists():
        raise RankFailure(0, 0, 0, "ended without returning")
    return pickle.loads((folder / RESULT).read_bytes())


def _importable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under a name that a fresh process can import: a script's own functions belong to __main__ only here.

    Raises ValueError for a function of a notebook or an interactive session.
    """
    if function.__module__ != "__main__":
        return function
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if main.__spec__ is None and file is None:
        raise ValueError(f"{function.__qualname__} is defined interactively: ranks can only call what a module defines")
    module = importlib.import_module(main.__spec__.name if main.__spec__ else Path(str(file)).stem)
    found: Callable[..., Any] = getattr(module, function.__qualname__)
    return found
