"""build_unet refuses what upstream computes wrongly or stops at, and says what to use."""

import pytest
from places import place_without_peers

from otil_exp.choices import Engine, GnSync, Parallelism, SplitScheme, SyncMode
from otil_exp.traffic import TrafficCounter
from otil_exp.upstream import build_unet
from tiny_sdxl import tiny_unet


@pytest.fixture(scope="module")
def unet():
    return tiny_unet()


def build(unet, *, world_size=2, split_batch=False, **settings):
    defaults = {
        "parallelism": Parallelism.patch,
        "sync_mode": SyncMode.no_sync,
        "warmup_steps": 1,
        "height": 128,
        "width": 128,
        "guidance": True,
        "traffic": TrafficCounter(),
    }
    return build_unet(unet, place_without_peers(0, world_size, split_batch), **defaults | settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"height": 720},
            "height=720 does not divide over 2 slices (needs a multiple of 64): use height=704 or height=768",
        ),
        ({"height": 8}, "(needs a multiple of 64): use height=64"),
        ({"parallelism": Parallelism.naive_patch}, "needs a split_scheme: row, col, alternate"),
        (
            {"parallelism": Parallelism.naive_patch, "split_scheme": SplitScheme.alternate, "width": 136},
            "width=136 does not divide over 2 slices (needs a multiple of 16): use width=128 or width=144",
        ),
        ({"sync_mode": None}, "parallelism=patch needs a sync_mode: full_sync, "),
        (
            {"sync_mode": SyncMode.sync_gn, "gn_sync": GnSync.exact},
            "gn_sync=true goes with sync_mode=no_sync, not with sync_gn",
        ),
        ({"parallelism": Parallelism.none}, "parallelism=none runs on one rank, not on 2"),
        ({"guidance": False, "split_batch": True}, "there are no two halves to split"),
        ({"parallelism": Parallelism.tensor, "world_size": 3}, "cannot divide 16 channels over 3 ranks"),
        ({"parallelism": Parallelism.tensor, "world_size": 8}, "cannot divide 4 GroupNorm groups over 8 ranks"),
        ({"engine": Engine.cuda_graph}, "engine=cuda_graph needs a GPU, and this rank is on cpu: use engine=eager"),
        (
            {"noise_gather": False, "cfg_repair": True, "world_size": 4, "split_batch": True},
            "cfg_repair=true needs a repair function",
        ),
    ],
)
def test_a_refused_setting_is_answered_with_a_sentence(unet, settings, sentence):
    with pytest.raises(ValueError) as error:
        build(unet, **settings)
    assert sentence in str(error.value)


def test_tensor_parallelism_takes_every_height(unet):
    build(unet, parallelism=Parallelism.tensor, world_size=1, height=136).close()


def test_one_slice_takes_every_height_too(unet):
    """17 latent rows, halved to 9: nothing is cut, and the UNet upsamples to the size it came from."""
    build(unet, world_size=2, split_batch=True, sync_mode=SyncMode.full_sync, height=136).close()
