"""otil_context on real ranks with the shapes model: exact where it must be, and what crosses the wire."""

from __future__ import annotations

import pytest
import torch

from composing import Typed
from otil_exp.traffic import Traffic
from pipelines import run_pipelines

VASE = "a large white vase in the middle of a seamless pale grey background"
STEPS = ("num_inference_steps=6", "warmup_steps=1")
OTIL = ("preset=otil_context", *STEPS)


@pytest.mark.ranks
@pytest.mark.parametrize("topology", ["2gpu_nosplit", "4gpu_split", "4gpu_nosplit"])
def test_all_blocks_and_a_refresh_every_step_is_full_sync(typed: Typed, topology: str) -> None:
    """And so the picture of one process: float32, 1e-4 on the final latents."""
    [[reference]] = run_pipelines([typed("preset=reference", *STEPS)], VASE)
    config = typed(*OTIL, f"topology={topology}", "k=all", "refresh.period=1")
    for result in run_pipelines([config], VASE)[0]:
        torch.testing.assert_close(result.latents, reference.latents, rtol=0, atol=1e-4)


@pytest.mark.ranks
def test_all_blocks_are_distrifusion_bit_for_bit(typed: Typed) -> None:
    """The same context, one step late, in one collective instead of many; GroupNorm of the own slice, or blocking."""
    modes = {"separate_gn": "preset.gn_sync=false", "sync_gn": "preset.gn_sync=true"}
    for mode, norm in modes.items():
        late, chosen = run_pipelines(
            [
                typed("preset=distrifusion", f"preset.sync_mode={mode}", "topology=4gpu_nosplit", *STEPS),
                typed(*OTIL, norm, "topology=4gpu_nosplit", "k=all"),
            ],
            VASE,
        )
        assert all(torch.equal(a.latents, b.latents) for a, b in zip(late, chosen, strict=True))


@pytest.mark.ranks
def test_a_step_sends_the_share_of_context_that_k_is_of_all_blocks(typed: Typed) -> None:
    """Against distrifusion's own count: 4 slices of 4 x 16 blocks; what is not context is counted apart.

    Not context: the noise prediction (2 x 4 x 8 x 32 float32 to 3 peers), k positions of 8 bytes to 3 peers. After the
    last step nobody would read context, and only the prediction is sent.
    """
    late, *chosen = run_pipelines(
        [typed("preset=distrifusion", "preset.sync_mode=separate_gn", "topology=4gpu_nosplit", *STEPS)]
        + [typed(*OTIL, "preset.gn_sync=false", "topology=4gpu_nosplit", f"k.budget={k}") for k in (4, 16, 64)],
        VASE,
    )
    prediction = 3 * 2 * 4 * 8 * 32 * 4
    whole = late[0].steps[3].traffic.bytes_sent - prediction
    for k, results in zip((4, 16, 64), chosen, strict=True):
        expected = Traffic(collectives=2, bytes_sent=whole * k // 64 + 3 * 8 * k + prediction)
        last = Traffic(collectives=1, bytes_sent=prediction)
        assert [trace.traffic for trace in results[0].steps[2:]] == [expected] * 3 + [last]


@pytest.mark.ranks
def test_every_rank_ends_with_the_same_latent_whatever_is_chosen(typed: Typed) -> None:
    settings = [
        ["preset.context.overlap=step", "refresh.period=2"],
        ["preset.context.score_on=middle_attention", "preset.context.against=last_sent", "codec=residual"],
        ["preset.context.score=random", "preset.context.polling=false", "codec=fp8"],
        ["preset.context.block_size=8", "k.budget=2"],
    ]
    configs = [typed(*OTIL, "topology=4gpu_split", *chosen) for chosen in settings]
    for results in run_pipelines(configs, VASE):
        assert all(torch.equal(result.latents, results[0].latents) for result in results)
        assert results[0].latents.isfinite().all()


@pytest.mark.ranks
def test_blocks_smaller_than_a_cell_of_the_lowest_resolution_run_on_eight_slices(typed: Typed) -> None:
    """Slices of 4 x 32 latent pixels: at a quarter of the resolution one row of 8 cells, 4 blocks of 2 x 2 in each."""
    late, chosen = run_pipelines(
        [
            typed("preset=distrifusion", "preset.sync_mode=separate_gn", "topology=8gpu_nosplit", *STEPS),
            typed(*OTIL, "preset.gn_sync=false", "topology=8gpu_nosplit", "k=all"),
        ],
        VASE,
        timeout=280,
    )
    assert torch.equal(late[0].latents, chosen[0].latents)
