"""What was measured, as data with its source: three transports of two H200s, and rows of DistriFusion's paper."""

from __future__ import annotations

from dataclasses import dataclass

NVLINK, HOST_MEMORY, TCP = "two_h200_nvlink", "two_h200_host_memory", "two_h200_tcp"


@dataclass(frozen=True)
class Measured:
    """One cell."""

    image_s: float
    """Seconds a picture of mode=benchmark: encoding the prompt and all steps."""

    ms: tuple[float | None, float | None, float | None] = (None, None, None)
    """Of a warm-up, steady and refresh step; None where it was not noted."""


STEPS = 50
SYNCHRONOUS = 5
REFRESHES = {"otil": 4, "balanced": 4}

TRANSPORTS: dict[str, dict[str, Measured]] = {
    NVLINK: {
        "guide": Measured(1.38),
        "otil": Measured(1.480, (33.1, 28.2, 33.0)),
        "balanced": Measured(1.49),
        "distrifusion": Measured(1.567, (33.3, 30.2, None)),
        "full_sync": Measured(1.66),
        "otil_context k=quarter": Measured(1.53),
    },
    HOST_MEMORY: {
        "guide": Measured(1.439, (49.4, 25.9, None)),
        "otil": Measured(1.628, (49.4, 28.3, 49.3)),
        "balanced": Measured(1.629, (49.4, 28.2, 49.3)),
        "distrifusion": Measured(1.875, (49.6, 35.4, None)),
        "full_sync": Measured(2.466, (None, 48.8, None)),
        "otil_context k=quarter": Measured(1.782, (49.4, 33.4, None)),
    },
    TCP: {
        "guide": Measured(1.981, (148.0, 27.1, None)),
        "otil": Measured(2.658, (151.0, 30.0, 161.0)),
        "balanced": Measured(2.707, (159.0, 29.8, 165.0)),
        "distrifusion": Measured(5.802, (164.0, 110.0, None)),
        "full_sync": Measured(8.678, (None, 173.0, None)),
        "otil_context k=quarter": Measured(3.795, (192.0, 61.5, None)),
    },
}
"""Two H200 of one host, 2026-11-30, commit 10c9251: sdxl_random fp16, 1024 x 1024, 50 DDIM steps, guidance 5,
topology=2gpu_nosplit, engine=cuda_graph, torch 2.11, NCCL 2.28.9; one untimed picture, one timed."""

OUTSIDE_STEPS_S = 0.026
"""Of a picture of otil on NVLink: 1.480 s less its steps. Taken for methods whose steps were not noted there."""


@dataclass(frozen=True)
class Published:
    """A row of a paper whose computation another row of it tells."""

    method: str
    world_size: int
    compute_s: float
    """Seconds a picture of the same slices without messages."""

    image_s: float
    source: str


TABLE_1, TABLE_2 = "Table 1, naive patch as computation", "Table 2, its row without communication"

PUBLISHED = (
    Published("distrifusion", 2, 2.83, 3.35, TABLE_1),
    Published("distrifusion", 4, 1.74, 2.26, TABLE_1),
    Published("distrifusion", 8, 1.48, 1.77, TABLE_2),
    Published("full_sync", 8, 1.48, 2.21, TABLE_2),
)
"""DistriFusion (CVPR 2024, arXiv 2402.19481 v4): SDXL fp16, 1024 x 1024, 50 DDIM steps, guidance 5, A100 80 GB SXM,
PyTorch 2.2, CUDA graphs, latent out, no batch split."""
