"""Which module measures which part."""

from __future__ import annotations

from plan import Plan


def measure(part: str, plan: Plan) -> None:
    """Run one part in this process; it keeps its figures as they come."""
    if part == "links":
        from links import links

        links(plan)
    elif part in ("collectives", "exchange", "capture"):
        import nccl

        getattr(nccl, part)(plan)
    elif part in ("cells_1024", "cells_2048"):
        from cells import timed_cells

        timed_cells(int(part.removeprefix("cells_")), plan)
    elif part in ("split", "eager_1024"):
        import cells

        {"split": cells.split_cells, "eager_1024": cells.eager_cells}[part](plan)
    elif part in ("compiled", "compiled_1024", "compiled_2048"):
        from compiled import compiled_cells

        compiled_cells((1024, 2048) if part == "compiled" else (int(part.removeprefix("compiled_")),), plan)
    elif part == "warm":
        from compiled import warm_cells

        warm_cells(plan)
    elif part == "compiled_pictures":
        from compiled_pictures import compare_compiled

        compare_compiled(plan)
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
