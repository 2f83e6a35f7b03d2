"""What a run tells a tracker, and how it is closed however the run ends."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Protocol

from otil_exp.choices import TrackerKind
from otil_exp.config import ExperimentConfig, TrackerConfig
from otil_exp.prompts import Prompt
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Follows one job of a run on rank 0; it begins where it is made."""

    def steps(self, rows: Sequence[StepRow]) -> None:
        """The steps of all ranks for one picture."""

    def picture(self, prompt: Prompt) -> None:
        """The picture of a prompt is in the run folder."""

    def finish(self) -> None:
        """The run is done: its metrics and steps are in the run folder."""

    def fail(self, error: BaseException) -> None:
        """The run failed."""


class NoTracker:
    """tracker=none, and every rank but the first."""

    def steps(self, rows: Sequence[StepRow]) -> None: ...

    def picture(self, prompt: Prompt) -> None: ...

    def finish(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Lenient:
    """A tracker whose failure, at its start or later, costs its log, not the run: said once, then silent."""

    def __init__(self) -> None:
        self._tracker: Tracker = NoTracker()

    def begin(self, start: Callable[[], Tracker]) -> None:
        """Start the tracker; until then this is none."""

        def take() -> None:
            self._tracker = start()

        self._try(take)

    def steps(self, rows: Sequence[StepRow]) -> None:
        self._try(lambda: self._tracker.steps(rows))

    def picture(self, prompt: Prompt) -> None:
        self._try(lambda: self._tracker.picture(prompt))

    def finish(self) -> None:
        self._try(self._tracker.finish)

    def fail(self, error: BaseException) -> None:
        self._try(lambda: self._tracker.fail(error))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            log.warning("the tracker stopped (%s: %s); the run folder has everything", type(error).__name__, error)
            self._tracker = NoTracker()


def rescored(folder: RunFolder) -> None:
    """Take new scores of a finished run to the log that its job left; nothing where it left none.

    A tracker that fails or is not installed costs its log, not the scores.
    """
    if not (folder.path / "wandb").is_dir():
        return
    try:
        from otil_exp.tracking.wandb_run import log_again  # late: nobody else pays for wandb

        plain = folder.config["tracker"]
        log_again(folder, TrackerConfig(**plain | {"name": TrackerKind[plain["name"]]}))
    except Exception as error:
        log.warning("the new scores are not at W&B (%s: %s); metrics.json has them", type(error).__name__, error)


@contextmanager
def tracked(config: ExperimentConfig, folder: RunFolder, is_main: bool) -> Iterator[Tracker]:
    """The tracker that an effective config asks for, on rank 0; it is finished or failed as the block ends.

    The run's record must have begun. Raises ModuleNotFoundError, with what to install, where wandb is missing.
    """
    if not is_main or config.tracker.name is TrackerKind.none:
        yield NoTracker()
        return
    try:
        from otil_exp.tracking.wandb_run import WandbTracker  # late: nobody else pays for wandb
    except ModuleNotFoundError as error:
        name = config.tracker.name.name
        raise ModuleNotFoundError(
            f"tracker={name} needs wandb: pip install 'otil-exp[wandb]', or tracker=none"
        ) from error
    tracker = Lenient()
    with _on_sigterm(_hold):
        try:
            with _on_sigterm(_leave):
                tracker.begin(lambda: WandbTracker(config, folder))
                yield tracker
        except BaseException as error:
            tracker.fail(error)
            raise
        tracker.finish()


@contextmanager
def _on_sigterm(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGTERM this way, unless somebody else does: rank 0 is ended so when another rank failed."""
    before: Any = signal.getsignal(signal.SIGTERM)
    if before not in (signal.SIG_DFL, _hold) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    """End the run as an exception does."""
    raise SystemExit(128 + signum)


def _hold(signum: int, frame: FrameType | None) -> None:
    """Let the log be closed: it takes less than the time that ranks get before SIGKILL."""
