"""The parts of the measurement: how long each may take, and which function measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from benchmarks.several_gpus.plan import Plan


@dataclass(frozen=True)
class Part:
    seconds: float
    """It may take at most."""

    where: str
    """module:function, which the process that measures imports."""

    arguments: tuple[Any, ...] = ()
    """Of the function, before the plan."""

    @property
    def function(self) -> Callable[..., None]:
        return resolve_name(f"benchmarks.several_gpus.{self.where}")

    def measure(self, plan: Plan) -> None:
        """Measure it in this process; it keeps its figures as they come."""
        self.function(*self.arguments, plan)


PARTS = {
    "compiled": Part(480, "compiled:compiled_cells", ((1024, 2048),)),
    "upstream": Part(120, "upstream_steps:upstream_steps"),
    "compiled_pictures": Part(480, "compiled_pictures:compare_compiled"),
    "pictures": Part(200, "pictures:compare_pictures"),
    "warm": Part(180, "compiled:warm_cells"),
    "compute_only": Part(150, "compute_only:compute_only"),
    "compiled_1024": Part(480, "compiled:compiled_cells", ((1024,),)),
    "compiled_2048": Part(480, "compiled:compiled_cells", ((2048,),)),
}
"""By name, in the order of what is missed most if time runs out.

compiled is compiled_1024 and compiled_2048 side by side, for a machine of many cores: after it they have nothing
left to do.
"""
