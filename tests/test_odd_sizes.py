"""One slice cuts nothing, so every height that the VAE takes is drawn, as one process draws it."""

from __future__ import annotations

import pytest
import torch

from composing import Typed
from pipelines import run_pipelines


@pytest.mark.ranks
def test_a_height_that_does_not_halve_on_one_slice(typed: Typed) -> None:
    """33 latent rows, halved to 17 (1080 pixels are 135 rows): the two halves of the batch against plain diffusers."""
    size = ("height=264", "width=256", "num_inference_steps=2", "warmup_steps=0")
    [[reference]] = run_pipelines([typed("preset=reference", *size)], "a red circle")
    [split] = run_pipelines([typed("preset=otil", "topology=2gpu_split", *size)], "a red circle")
    assert reference.latents.shape[-2] == 33
    for rank in split:
        torch.testing.assert_close(rank.latents, reference.latents, rtol=1e-3, atol=1e-3)
