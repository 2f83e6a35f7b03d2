"""distrifuser's configuration object, filled from a RankContext."""

from __future__ import annotations

from otil_exp.topology import RankContext
from otil_exp.upstream.imports import DistriConfig


class RankConfig(DistriConfig):
    """A DistriConfig for any world size, backend and device, made without touching the process group.

    Upstream's own __init__ (utils.py:24-104, not called) swallows a failed init_process_group and goes on as if there
    were one GPU, needs CUDA and NCCL, puts rank r on cuda:r on every node, and refuses world sizes like 3 and 6.
    """

    def __init__(
        self,
        ranks: RankContext,
        *,
        parallelism: str,
        mode: str,
        warmup_steps: int,
        height: int,
        width: int,
        guidance: bool,
        comm_checkpoint: int = 60,
    ) -> None:
        """height, width: pixels. parallelism: patch or tensor. comm_checkpoint: tensors sent in one collective.

        mode: what layers exchange after warm-up, in distrifuser's words: full_sync, corrected_async_gn, stale_gn,
        sync_gn, separate_gn or no_sync.
        """
        topology = ranks.topology
        self.world_size, self.rank = topology.world_size, ranks.rank
        self.height, self.width = height, width
        self.do_classifier_free_guidance, self.split_batch = guidance, topology.split_batch
        self.warmup_steps, self.comm_checkpoint = warmup_steps, comm_checkpoint
        self.mode, self.parallelism, self.split_scheme = mode, parallelism, "row"
        self.use_cuda_graph = False  # graphs are captured by otil_exp.rank_unet.engine, not by upstream's forward
        self.verbose = False
        self.n_device_per_batch = topology.slices
        self.device = ranks.device
        self.batch_group = ranks.batch_group
