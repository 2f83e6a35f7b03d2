"""All calls that are measured, the largest predicted gain first."""

from __future__ import annotations

from benchmarks.small_calls import norms, products, text
from benchmarks.small_calls.case import Candidate, Case

CASES = [*text.cases(), *products.cases(), *norms.cases()]

CANDIDATES: list[tuple[Case, Candidate]] = [(case, candidate) for case in CASES for candidate in case.candidates]
