"""Ranks of these tests start with diffusers loaded."""

from multiprocessing import forkserver

import pytest


@pytest.fixture(scope="session", autouse=True)
def preloaded_ranks() -> None:
    """Start the server that ranks fork from (tests/ranks.py) with diffusers in it: seconds a rank otherwise."""
    forkserver.set_forkserver_preload(
        ["torch.distributed", "diffusers.models.unets.unet_2d_condition", "diffusers.pipelines.stable_diffusion_xl"]
    )
    forkserver.ensure_running()
