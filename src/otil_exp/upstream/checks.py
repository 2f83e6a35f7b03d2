"""What `build_unet` refuses, with a sentence, because upstream would stop in a layer or compute something else."""

from __future__ import annotations

from diffusers import UNet2DConditionModel
from torch import distributed as dist

from otil_exp.choices import GnSync, Parallelism, SplitScheme, SyncMode
from otil_exp.config import VAE_FACTOR
from otil_exp.topology import RankContext
from otil_exp.upstream.inputs import split_dim


def check_method(
    ranks: RankContext,
    parallelism: Parallelism,
    sync_mode: SyncMode | None,
    split_scheme: SplitScheme | None,
    gn_sync: GnSync,
    guidance: bool,
) -> None:
    """Refuse settings of a method that contradict each other or the topology."""
    world_size = ranks.topology.world_size
    if parallelism is Parallelism.none and world_size > 1:
        raise ValueError(f"parallelism=none runs on one rank, not on {world_size}")
    if ranks.topology.split_batch and not guidance:
        raise ValueError("split_batch=true without guidance: there are no two halves to split; use split_batch=false")
    if parallelism is Parallelism.patch and sync_mode is None:
        raise ValueError(f"parallelism=patch needs a sync_mode: {', '.join(mode.value for mode in SyncMode)}")
    if parallelism is Parallelism.naive_patch and split_scheme is None:
        raise ValueError(f"parallelism=naive_patch needs a split_scheme: {', '.join(s.value for s in SplitScheme)}")
    if gn_sync is not GnSync.off and sync_mode is not SyncMode.no_sync:
        raise ValueError(
            f"gn_sync={gn_sync} goes with sync_mode=no_sync, not with {sync_mode.value if sync_mode else None}"
        )


def check_sizes(
    unet: UNet2DConditionModel,
    ranks: RankContext,
    parallelism: Parallelism,
    split_scheme: SplitScheme | None,
    height: int,
    width: int,
) -> None:
    """Refuse sizes that upstream computes wrongly or stops at in the middle of a layer."""
    slices, channels = ranks.topology.slices, unet.config.block_out_channels
    # Halves of odd sizes are the UNet's own business where nothing is cut: it upsamples to the size it came from.
    rows = VAE_FACTOR * slices * 2**unet.num_upsamplers if slices > 1 else VAE_FACTOR
    cuts = {
        "height": (height, rows if parallelism is Parallelism.patch else VAE_FACTOR * _cut(split_scheme, 2, slices)),
        "width": (width, VAE_FACTOR * _cut(split_scheme, 3, slices)),
    }
    for name, (size, multiple) in cuts.items():
        if size % multiple:
            lower = size // multiple * multiple
            nearest = f"{name}={lower} or {name}={lower + multiple}" if lower else f"{name}={multiple}"
            raise ValueError(
                f"{name}={size} does not divide over {slices} slices (needs a multiple of {multiple}): use {nearest}"
            )
    if parallelism is Parallelism.tensor:
        for count, what in [(c, "channels") for c in channels] + [(unet.config.norm_num_groups, "GroupNorm groups")]:
            if count % slices:
                raise ValueError(f"parallelism=tensor cannot divide {count} {what} over {slices} ranks")


def _cut(split_scheme: SplitScheme | None, dim: int, slices: int) -> int:
    """Parts along a dimension: 1 unless naive_patch ever cuts there."""
    return slices if split_scheme and dim in {split_dim(split_scheme, counter) for counter in (0, 1)} else 1


def check_graphs(ranks: RankContext, parallelism: Parallelism) -> None:
    """Refuse CUDA graphs without a GPU, and of layers whose collectives run on the host."""
    if ranks.device.type != "cuda":
        raise ValueError(f"engine=cuda_graph needs a GPU, and this rank is on {ranks.device}: use engine=eager")
    communicates = ranks.topology.slices > 1 and parallelism in (Parallelism.patch, Parallelism.tensor)
    if communicates and dist.get_backend(ranks.batch_group) == "gloo":
        raise ValueError(
            f"engine=cuda_graph cannot capture the collectives of parallelism={parallelism.value} over gloo, which run "
            "on the host: use engine=eager, or device=cuda (NCCL)"
        )
