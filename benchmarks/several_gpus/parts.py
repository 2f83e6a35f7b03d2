"""Which module measures which part."""

from __future__ import annotations

from plan import Plan


def measure(part: str, plan: Plan) -> None:
    """Run one part in this process; it keeps its figures as they come."""
    if part == "links":
        from links import links

        links(plan)
    elif part in ("collectives", "capture"):
        import nccl

        getattr(nccl, part)(plan)
    elif part in ("cells_1024", "cells_2048"):
        from cells import timed_cells

        timed_cells(int(part.removeprefix("cells_")), plan)
    elif part == "pictures":
        from pictures import compare_pictures

        compare_pictures(plan)
    elif part == "compute_only":
        from compute_only import compute_only

        compute_only(plan)
    elif part == "upstream":
        from upstream_steps import upstream_steps

        upstream_steps(plan)
    elif part == "death":
        from death import kill_a_rank

        kill_a_rank(plan)
    else:
        raise ValueError(f"{part} is no part of the plan")
