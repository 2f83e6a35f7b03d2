"""The parts of the self-test: what is tried, how long it may take, and which function tries it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name

from otil_exp.selftest.plan import Finding, Plan


@dataclass(frozen=True)
class Part:
    """One thing that is tried."""

    what: str
    """In a few words."""

    seconds: float
    """It may take at most."""

    where: str
    """module:function of this package, which the process of the part imports."""

    @property
    def function(self) -> Callable[[Plan], Finding]:
        found: Callable[[Plan], Finding] = resolve_name(f"otil_exp.selftest.{self.where}")
        return found


PARTS = {
    "promises": Part("what blocks of the latent the ranks know after an exchange", 90, "promises:promises"),
    "machine": Part("GPUs, and what joins them", 60, "machine:machine"),
    "copies": Part("copies between host and GPU, and from GPU to GPU", 60, "copies:copies"),
    "collectives": Part("collectives and messages, by size", 120, "collectives:collectives"),
    "capture": Part("collectives inside CUDA graphs", 90, "capture:capture"),
    "exchange": Part("the exchange of a step of `guide`", 90, "exchange_time:exchange_time"),
    "death": Part("a rank that is killed in the middle of a run", 240, "death:death"),
}
"""By name, in the order in which they are tried."""

WITHOUT_DEVICE = ("promises",)
"""What is tried where no device is named: the exchange itself, which needs no GPU."""
