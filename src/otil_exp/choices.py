"""What a value of the config can be, where it is one of a few words; those of one family of methods
that nothing below reads lie in its room (`otil_exp.methods`)."""

from __future__ import annotations

from enum import Enum, StrEnum


class Mode(StrEnum):
    generate = "generate"
    """Make the pictures and score them."""
    benchmark = "benchmark"
    """Time the denoising alone (no VAE): warm-up runs, repeats, extremes dropped."""


class GroupNormKind(StrEnum):
    exact = "exact"
    """Statistics as one process computes them: fp32, biased variance."""
    upstream = "upstream"
    """distrifuser's arithmetic, bit for bit."""


class DeviceKind(StrEnum):
    auto = "auto"
    """cuda where there is a GPU, else cpu; too few GPUs for the ranks are refused, with what to type."""
    cuda = "cuda"
    """One GPU a rank, NCCL."""
    shared_gpu = "shared_gpu"
    """All ranks on one GPU, gloo: exact pictures of N GPUs; its times mean nothing."""
    cpu = "cpu"
    """gloo."""


class Engine(StrEnum):
    eager = "eager"
    cuda_graph = "cuda_graph"
    """The UNet of each kind of step is captured once and replayed; the text encoders, too."""
    compiled = "compiled"
    """The UNet of each kind of step is compiled, and captured where there is a GPU; the VAE's GroupNorms are ours."""


class Products(StrEnum):
    """What matrix products of the transformer blocks multiply."""

    model_dtype = "model_dtype"
    """Numbers of model.dtype."""
    fp8 = "fp8"
    """float8_e4m3fn, one static scale a tensor (otil_exp.rank_unet.products)."""


class Scheduler(StrEnum):
    ddim = "ddim"
    euler = "euler"
    dpmpp = "dpmpp"
    """DPM-Solver++(2M)."""


class Dtype(StrEnum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


class PromptSource(StrEnum):
    list = "list"
    """prompts.texts, in the config itself."""
    shapes = "shapes"
    """Captions of random scenes in the words the shapes model knows."""
    file = "file"
    """A text file (one a line), JSONL, TSV or CSV at prompts.path."""
    coco = "coco"
    """COCO captions at prompts.path: COCO's own JSON, images by ascending id, or Karpathy's dataset_coco.json, the
    validation images in the file's order."""


class Caption(StrEnum):
    """Which of the captions of an image is its prompt."""

    first = "first"
    """The first one."""
    rotating = "rotating"
    """Caption i mod n of the i-th image, of n that it has (distrifuser's scripts)."""


class TrackerKind(StrEnum):
    none = "none"
    """Run folders only."""
    wandb = "wandb"
    """W&B; offline where no key is set or the server does not answer in time."""
    wandb_offline = "wandb_offline"
    """W&B's files in the run folder, for `wandb sync` later."""


class StaleSums(StrEnum):
    """What a layer of tensor parallelism adds up after warm-up while the sum of its step is on its way."""

    peers = "peers"
    """The rank's own partial sum of this step, the peers' of the step before."""
    all = "all"
    """All partial sums of the step before."""


class TensorLayers(StrEnum):
    """Kinds of layers that tensor parallelism splits."""

    attention = "attention"
    """Self- and cross-attention, split by heads."""
    feed_forward = "feed_forward"
    convolution = "convolution"
    """Residual blocks, down- and upsampling, the last convolution; split by channels."""


class Against(StrEnum):
    """What a block is compared with to score how much it changed."""

    previous_step = "previous_step"
    last_sent = "last_sent"


class ScoreOn(StrEnum):
    """What is compared to tell how much a block changed."""

    latent = "latent"
    """The latent that the UNet gets."""
    first_attention = "first_attention"
    """K/V of its first self-attention layer."""
    middle_attention = "middle_attention"
    last_attention = "last_attention"


class Halos(StrEnum):
    """Whose boundary rows of convolutions are sent along."""

    chosen = "chosen"
    """Those of chosen blocks at the slice's edge: context is k/K as a whole."""
    all = "all"
    """All of them every time: few bytes in SDXL (4 % of the context), and no seam grows old."""


class CodecScope(StrEnum):
    """Which exchanges a codec reaches."""

    late = "late"
    """Blocks of layer context, and noise predictions after warm-up: what a method adds to its layers' exchange."""
    all = "all"
    """Also what the layers exchange, waited for or a step late, in every step; GroupNorm statistics stay exact."""


class Overlap(StrEnum):
    """When context that was sent after a step is used."""

    none = "none"
    """In the next step, which waits for it: as old as DistriFusion's context."""
    step = "step"
    """In the step after the next: it travels while the next one computes."""


class GnSync(Enum):
    """Whose rows GroupNorm sees after warm-up while convolutions and attention are silent."""

    off = False
    """Those of the own slice."""
    exact = True
    """Those of all slices, as they are: a collective in every layer."""
    fused = "fused"
    """Those of all slices, the others' as they were a step ago: one collective a step."""
