"""otil-selftest: is this machine fit? One part a module, each run in a process of its own, within a bound.

A part is a function of a Plan that returns a Finding, and an entry of `parts.PARTS`. It raises LeftOutError where the
machine has nothing to try it on, and anything else where something is broken.
"""

from otil_exp.selftest.command import main

__all__ = ["main"]
