"""A stage's steps: fixed in advance, or fixed early on from the measured pace and the time allowed."""

import math
import time
from collections.abc import Iterator

import torch
from config import Stage

SETTLE, SAMPLE = 25, 40
"""Steps that are not timed (compilation, warm-up), and steps that are."""


class Pace:
    """Iterate over a stage's steps; `lr()` follows warm-up and cosine, `total` is known once the pace is."""

    def __init__(self, stage: Stage, log) -> None:
        self.stage = stage
        self.log = log
        self.step = 0
        self.total = stage.steps

    def __iter__(self) -> Iterator[int]:
        start = time.perf_counter()
        while self.total is None or self.step < self.total:
            yield self.step
            self.step += 1
            if self.total is None and self.step == SETTLE:
                settled = synchronised_time()
            if self.total is None and self.step == SETTLE + SAMPLE:
                now = synchronised_time()
                pace = (now - settled) / SAMPLE
                self.total = self.step + max(0, int((self.stage.seconds - (now - start)) / pace))
                self.log(f"pace: first {SETTLE} steps {settled - start:.1f} s, then {pace * 1e3:.2f} ms a step; "
                         f"{self.total} steps in {self.stage.seconds:.0f} s")  # fmt: skip

    def lr(self) -> float:
        """Return the learning rate of the current step."""
        peak, warmup = self.stage.learning_rate, self.stage.warmup
        if self.step < warmup or self.total is None:
            return peak * min(1.0, (self.step + 1) / warmup)
        return peak * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * (self.step - warmup) / (self.total - warmup))))


def synchronised_time() -> float:
    """Return the clock after everything queued on the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set one learning rate for all parameters."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def adamw(parameters: list[torch.nn.Parameter], stage: Stage) -> torch.optim.AdamW:
    """Return the optimiser of a stage, fused where it can be."""
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(
        parameters, lr=stage.learning_rate, betas=(0.9, 0.99), weight_decay=stage.weight_decay, fused=fused
    )
