"""How a rank's exception reaches the process that started it: torch elastic's error file."""

from __future__ import annotations

import os

from torch.distributed.elastic.multiprocessing.errors import ErrorHandler


class WholeFileErrorHandler(ErrorHandler):
    """Writes the error file whole or not at all.

    elastic ends the siblings of a failed rank while they write theirs, and would stumble over half a file.
    """

    def _get_error_file_path(self) -> str:
        return os.environ["TORCHELASTIC_ERROR_FILE"] + ".part"

    def record_exception(self, e: BaseException) -> None:
        super().record_exception(e)
        os.replace(self._get_error_file_path(), os.environ["TORCHELASTIC_ERROR_FILE"])
