"""otil_context on real ranks, whole pipelines: exact where it must be, and what crosses the wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from composing import Typed
from otil_exp.traffic import Traffic
from pipelines import Result, run_pipelines

PROMPT = "a red circle"
STEPS = ("num_inference_steps=4", "warmup_steps=0", "height=256", "width=256")
"""Warm-up, two steady steps, the last one."""

EXACT = "otil_context k=all refresh.period=1"
LATE = {mode: f"distrifusion preset.sync_mode={mode}" for mode in ("separate_gn", "sync_gn")}
ALL = {
    "separate_gn": "otil_context preset.gn_sync=false k=all",
    "sync_gn": "otil_context preset.gn_sync=true k=all",
}
SOME = {k: f"otil_context preset.gn_sync=false k.budget={k}" for k in (4, 16, 64)}
CHOSEN = (
    "otil_context preset.context.overlap=step refresh.period=2",
    "otil_context preset.context.score_on=middle_attention preset.context.against=last_sent codec=residual",
    "otil_context preset.context.score=random preset.context.polling=false codec=fp8",
    "otil_context preset.context.block_size=8 k.budget=2",
)
CELLS: dict[str, tuple[str, ...]] = {
    "1gpu": ("reference",),
    "2gpu_nosplit": (EXACT,),
    "4gpu_split": (EXACT, *CHOSEN),
    "4gpu_nosplit": (EXACT, *LATE.values(), *ALL.values(), *SOME.values()),
    "8gpu_nosplit": (LATE["separate_gn"], ALL["separate_gn"]),
}
"""What is run on each topology."""

Made = Callable[[str, str], list[Result]]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, list[Result]]]:
    return {}


@pytest.fixture
def made(
    typed: Typed,
    two_levels: tuple[str, ...],
    three_levels: tuple[str, ...],
    results: dict[str, dict[str, list[Result]]],
) -> Made:
    """made(topology, words): what each rank holds in the end; ranks start once for all cells of a topology.

    On eight slices three levels: at a quarter of the resolution a cell has several of the smallest blocks.
    """

    def of(topology: str, words: str) -> list[Result]:
        if topology not in results:
            model = three_levels if topology == "8gpu_nosplit" else two_levels
            where = (*model, *STEPS, f"topology={topology}")
            cells = CELLS[topology]
            configs = [typed(*where, *f"preset={cell}".split()) for cell in cells]
            results[topology] = dict(zip(cells, run_pipelines(configs, PROMPT, timeout=280), strict=True))
        return results[topology][words]

    return of


@pytest.mark.ranks
@pytest.mark.parametrize("topology", ["2gpu_nosplit", "4gpu_split", "4gpu_nosplit"])
def test_all_blocks_and_a_refresh_every_step_is_full_sync(made: Made, topology: str) -> None:
    """And so the picture of one process: float32, 1e-4 on the final latents."""
    [reference] = made("1gpu", "reference")
    for result in made(topology, EXACT):
        torch.testing.assert_close(result.latents, reference.latents, rtol=0, atol=1e-4)


@pytest.mark.ranks
@pytest.mark.parametrize("mode", LATE)
def test_all_blocks_are_distrifusion_bit_for_bit(made: Made, mode: str) -> None:
    """The same context, one step late, in one collective instead of many; GroupNorm of the own slice, or blocking."""
    late, chosen = made("4gpu_nosplit", LATE[mode]), made("4gpu_nosplit", ALL[mode])
    assert all(torch.equal(a.latents, b.latents) for a, b in zip(late, chosen, strict=True))


@pytest.mark.ranks
@pytest.mark.parametrize("k", SOME)
def test_a_step_sends_the_share_of_context_that_k_is_of_all_blocks(made: Made, k: int) -> None:
    """Against distrifusion's own count: 4 slices of 4 x 16 blocks; what is not context is counted apart.

    Not context: the noise prediction (2 x 4 x 8 x 32 float32 to 3 peers), k positions of 8 bytes to 3 peers. After the
    last step nobody would read context, and only the prediction is sent.
    """
    late, chosen = made("4gpu_nosplit", LATE["separate_gn"])[0], made("4gpu_nosplit", SOME[k])[0]
    prediction = 3 * 2 * 4 * 8 * 32 * 4
    whole = late.steps[2].traffic.bytes_sent - prediction
    expected = Traffic(collectives=2, bytes_sent=whole * k // 64 + 3 * 8 * k + prediction)
    last = Traffic(collectives=1, bytes_sent=prediction)
    assert [trace.traffic for trace in chosen.steps[1:]] == [expected] * 2 + [last]


@pytest.mark.ranks
@pytest.mark.parametrize("words", CHOSEN)
def test_every_rank_ends_with_the_same_latent_whatever_is_chosen(made: Made, words: str) -> None:
    first, *others = made("4gpu_split", words)
    assert first.latents.isfinite().all()
    assert all(torch.equal(result.latents, first.latents) for result in others)


@pytest.mark.ranks
def test_blocks_smaller_than_a_cell_of_the_lowest_resolution_run_on_eight_slices(made: Made) -> None:
    """Slices of 4 x 32 latent pixels: at a quarter of the resolution one row of 8 cells, 4 blocks of 2 x 2 in each."""
    late, *_ = made("8gpu_nosplit", LATE["separate_gn"])
    chosen, *_ = made("8gpu_nosplit", ALL["separate_gn"])
    assert torch.equal(late.latents, chosen.latents)
