"""Files that a log needs: pictures of run folders, and where wandb keeps those of tables until they are synced."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from PIL import Image

from otil_exp.run_folder.folder import RunFolder

log = logging.getLogger(__name__)

STAGING = "WANDB_DATA_DIR"

_ours: set[str] = set()
"""Values that we gave STAGING: the next run of this process has another, and a user's own stays."""


def picture_of(folder: RunFolder, prompt: int) -> Image.Image | None:
    """The picture of a prompt; None, which is said, where there is none or it cannot be read."""
    path = folder.image_path(prompt)
    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's own for files that are cut or no pictures
        log.warning("not logged: %s (%s)", path, error)
        return None


def staged_in(folder: Path) -> None:
    """Let wandb stage what belongs to tables in this run's own folder, from where it is synced later."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.environ.get(STAGING) is None or os.environ[STAGING] in _ours:
        os.environ[STAGING] = str(folder)
        _ours.add(str(folder))
