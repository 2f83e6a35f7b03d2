"""Methods whose ranks compute whole pictures: compiled layers make the pictures that called ones make."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.choices import Engine
from otil_exp.methods import staged_step
from otil_exp.stages.parts import SegmentCall
from pipelines import run_pipelines

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(600)]

METHODS = ("asyncdiff", "step_reuse")
"""And fold, whose pictures test_staged_text.py makes in both engines."""

SHORT = ("num_inference_steps=4", "warmup_steps=1", "height=64", "width=64", "topology=2gpu_nosplit")


def test_compiled_they_make_what_they_make_called(typed: Typed, two_levels: tuple[str, ...]) -> None:
    cells = [
        typed(f"preset={method}", *two_levels, *SHORT, f"engine={engine}")
        for method in METHODS
        for engine in ("eager", "compiled")
    ]
    assert [effective(cell).engine.name for cell in cells] == [Engine.eager, Engine.compiled] * len(METHODS)
    results = run_pipelines(cells, "a red circle", timeout=500)
    for called, compiled in zip(results[::2], results[1::2], strict=True):
        for one, other in zip(called, compiled, strict=True):
            assert (one.latents - other.latents).abs().max() <= 1e-4 * one.latents.abs().max()


def test_a_segments_graph_that_leaves_another_skip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 2 * x, x

    x, called = torch.ones(3), cast(SegmentCall, segment)
    graphs = iter([lambda segment, x: (2 * x, x), lambda segment, x: (2 * x, -x)])
    monkeypatch.setattr(staged_step, "compiled_call", lambda *_: next(graphs))
    assert torch.equal(staged_step._compiled_segment(called, x)(x)[1], x)
    with pytest.raises(RuntimeError, match="something else than the UNet"):
        staged_step._compiled_segment(called, x)
