"""The training log: one line an event, with the seconds since the start, on screen and in a file."""

import time
from pathlib import Path


class Log:
    """Call it with a sentence."""

    def __init__(self, path: Path) -> None:
        self.start = time.perf_counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a", buffering=1)

    def __call__(self, sentence: str) -> None:
        line = f"[{time.perf_counter() - self.start:6.1f} s] {sentence}"
        print(line, flush=True)
        self.file.write(line + "\n")
