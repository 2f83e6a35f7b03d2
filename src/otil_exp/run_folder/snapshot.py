"""A run folder as tables and reports read it: each file once, and a broken one costs its own row only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.record import Record
from otil_exp.run_folder.steps import Steps, read_steps
from otil_exp.run_folder.whole import BrokenFolderError


class Snapshot(RunFolder):
    """A run folder as it is now. Where a file is not whole, its status is `broken`, and `error` says which and why."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder.path, folder.planned)
        self._record, self._metrics, self._config = Record(self.path, {}), dict[str, Any](), dict[str, Any]()
        try:
            self._record = super().record
            self._metrics = super().metrics
            if not self._check_seal("steps.csv", self._record):
                super().read_steps()
            if "config.yaml" in self._record.get("checksums", {}) or (self.path / "config.yaml").exists():
                self._config = super().config
        except BrokenFolderError as error:
            told = {key: value for key, value in self.planned.items() if key != "config"} | self._record
            self._record = Record(self.path, told | {"status": "broken", "error": str(error)})
            self._metrics, self._config = {}, {}

    @property
    def broken(self) -> bool:
        """Whether a file of it is not whole."""
        return self._record.get("status") == "broken"

    @property
    def record(self) -> Record:
        return self._record

    @property
    def metrics(self) -> dict[str, Any]:
        return self._metrics

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml; empty where there is none yet."""
        return self._config

    def read_steps(self) -> Steps:
        """As they are now; that they are what the run wrote was looked at when this was made."""
        return Steps.of([]) if self.broken else read_steps(self.path / "steps.csv", complete=self.finished)


def snapshots(folders: Sequence[RunFolder]) -> list[Snapshot]:
    """These folders as they are now; those that are snapshots stay."""
    return [folder if isinstance(folder, Snapshot) else Snapshot(folder) for folder in folders]
