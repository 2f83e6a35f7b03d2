"""The schema of a composed config: what every value means, and what it may be on its own.

Hydra reads it as structured configs, so a wrong type or an unknown key is refused while composing. Settings of a family
of methods (`preset.`) lie in its room of `otil_exp.methods`; rules that tie several values together in
`otil_exp.cells.rules` and in the rooms. A field's default is what a signature takes as unsaid
(`otil_exp.run_folder.signature`): a new field with a default leaves finished runs found, a changed default does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from omegaconf import MISSING

from otil_exp.choices import (
    Caption,
    CodecScope,
    DeviceKind,
    Dtype,
    Engine,
    GroupNormKind,
    Mode,
    Products,
    PromptSource,
    Scheduler,
    TrackerKind,
)


@dataclass
class MethodConfig:
    """A method: what every family has; a room of `otil_exp.methods` adds the settings of its own."""

    name: str = MISSING
    """Name of the method; the run folder's config.yaml carries it here."""


@dataclass
class TopologyConfig:
    """How many ranks, and whether the CFG halves live apart."""

    world_size: int = 1
    """Ranks, one GPU each on a GPU machine."""

    split_batch: bool = False
    """Whether the unconditional and the conditional half of the CFG batch go to different ranks."""


@dataclass
class KConfig:
    """Budget of methods that select blocks; ignored by the others."""

    budget: float = 0
    """Blocks a rank sends each step, k: a count if >= 1, a fraction of the slice's blocks K if < 1, infinite: all; 0
    stands for a method that selects none."""


@dataclass
class CodecConfig:
    """How what is sent is written down: the layer context of a method that sends it block by block, the noise
    prediction of a method with silent layers that gathers it, and with scope=all what the layers of slices exchange;
    ignored by the others."""

    quantizer: str = "none"
    """none, fp8, int8, int4, int2 or int1; a name of otil_exp.exchange.QUANTIZERS."""

    residual: bool = False
    """Whether the change against what the peers hold is sent, with error feedback, instead of the value."""

    scope: CodecScope = CodecScope.late
    """late: what is sent beside the layers' own exchange; all: that, too, in synchronous steps as well."""


@dataclass
class RefreshConfig:
    """Periodic renewal of the layer context of silent methods; ignored by the others."""

    period: int = 0
    """Every period-th step after warm-up runs as a warm-up step; 0 never."""

    rolling: bool = False
    """Whether every step renews a period-th part of the layers' context instead, to be used in the next step; only of
    methods with silent layers."""


@dataclass
class ModelConfig:
    """Which pipeline is loaded."""

    name: str = MISSING
    """shapes, sdxl, sd15, sd21, or one of the last three with _random; or that of your own file of conf/model."""

    architecture: str = "sdxl"
    """Which networks the pipeline is made of: sdxl, sd15, sd21, shapes, or files (as the source's own files say)."""

    source: str = MISSING
    """A hub id, a local folder, "package" (ships with otil_exp) or "random" (architecture only, seeded weights)."""

    variant: str | None = None
    """Weight variant to load, such as fp16."""

    revision: str | None = None
    """Hub revision."""

    dtype: Dtype = Dtype.float32
    """Weights and activations."""

    sample_size: int = 1024
    """Side of the pictures the model was trained for, in pixels; default of height and width."""

    guidance_scale: float = 5.0
    """Classifier-free guidance that the model is used with; default of guidance_scale."""

    block_size: int = 8
    """Side of a block of the transmitting methods, in latent pixels."""


@dataclass
class PromptsConfig:
    """Which prompts, and which of them."""

    source: PromptSource = MISSING
    """Where they come from."""

    texts: list[str] = field(default_factory=list)
    """The prompts of source=list."""

    path: str | None = None
    """Text, JSONL or TSV file of prompts=file; captions JSON of prompts=coco and coco_karpathy."""

    column: str | None = None
    """Column (TSV) or key (JSONL) that holds the prompt; None finds Prompt, prompt, caption or text."""

    caption: Caption = Caption.first
    """Which caption of an image of COCO: first, or rotating, as distrifuser's scripts choose."""

    limit: int | None = None
    """Only the first so many; None all."""

    shard: str | None = None
    """"i/n": only every n-th prompt, starting with the i-th (0-based), after limit; None all."""


@dataclass
class DeviceConfig:
    """Where the ranks compute."""

    kind: DeviceKind = DeviceKind.auto
    """auto, cuda, shared_gpu or cpu."""

    threads: int | None = None
    """CPU threads a rank; None shares the cores out."""

    link_mbit: float = 0.0
    """Megabits a second that a rank sends and receives at most (docs/links.md): on Linux, as root; 0 for no limit."""

    link_delay_ms: float = 0.0
    """Delay of what a rank sends over such a link, milliseconds; takes a kernel with netem."""


@dataclass
class EngineConfig:
    """How a step of the UNet is executed."""

    name: Engine = Engine.eager
    """eager, cuda_graph or compiled."""

    sliced_decode: bool = False
    """Whether the VAE decodes a slice a rank, exactly, instead of the whole picture on rank 0."""

    products: Products = Products.model_dtype
    """model_dtype, or fp8: what matrix products of the transformer blocks multiply."""


@dataclass
class MetricsConfig:
    """What is scored after the pictures."""

    psnr: bool = False
    """PSNR to the reference picture of the same prompt and seed, in dB."""

    ssim: bool = False
    """SSIM to the reference picture."""

    perceptual: str | None = None
    """Perceptual distance to the reference picture: lpips_alex (LPIPS), effnet_lite0_5stage (ships), or null."""

    paired: list[str] = field(default_factory=list)
    """Further scores against the reference picture, by name: psnr, ssim, lpips_alex, effnet_lite0_5stage."""

    seams: bool = False
    """Seam statistics at the boundaries of the slices, alone and against the reference picture."""

    extractors: list[str] = field(default_factory=list)
    """Features for Frechet and kernel distances of sets: inception (FID, KID), inception_clean (as clean-fid resizes),
    effnet_lite0, shapes_classifier."""

    ground_truth: str | None = None
    """Second set for those distances, besides the reference run: a folder, renders (of shapes captions), null."""

    text_image: str | None = None
    """CLIP whose score is computed: a hub id in the cache, a folder, shapes_text_image (ships), or null."""

    alexnet_weights: str | None = None
    """File of lpips_alex; null looks in torch's cache."""

    inception_weights: str | None = None
    """File of inception; null looks in torch's cache."""


@dataclass
class TrackerConfig:
    """Where runs are logged besides the run folder."""

    name: TrackerKind = TrackerKind.none
    """none, wandb or wandb_offline."""

    project: str = "otil_exp"
    """W&B project."""

    entity: str | None = None
    """W&B user or team; null is the key's own."""

    pictures: int = 32
    """Pictures of so many prompts are logged, the first ones; all stay files."""

    init_timeout_s: float = 20.0
    """Seconds in which the server must answer, else the run is logged offline; the other ranks may wait as long."""

    finish_timeout_s: float = 60.0
    """Seconds that uploading may take at the end; what is left stays on disk for `wandb sync`."""


@dataclass
class BenchmarkConfig:
    """How mode=benchmark times."""

    warmup_images: int = 2
    """Untimed images first."""

    repeats: int = 5
    """Timed images."""

    drop_extremes: int = 1
    """Fastest and slowest images left out at each end."""


@dataclass
class LaunchConfig:
    """Bounds of a job."""

    collective_timeout_s: float = 300.0
    """A collective that takes longer ends the job, in seconds."""


@dataclass
class ExperimentConfig:
    """One cell of a grid, composed."""

    name: str = MISSING
    """Folder of the grid below output_dir."""

    output_dir: str = "outputs"
    """Root of all run folders."""

    mode: Mode = Mode.generate
    """generate or benchmark."""

    height: int = MISSING
    """Picture height, pixels."""

    width: int = MISSING
    """Picture width, pixels."""

    num_inference_steps: int = 50
    """Denoising steps."""

    guidance_scale: float = 5.0
    """Classifier-free guidance; 1 turns it off."""

    warmup_steps: int = 4
    """Index of the last synchronous step: steps 0..warmup_steps are synchronous."""

    scheduler: Scheduler = Scheduler.ddim
    """ddim, euler or dpmpp."""

    seed: int = 0
    """Picture i (its index in the whole prompt set) starts from seed + i."""

    groupnorm: GroupNormKind = GroupNormKind.exact
    """exact or upstream; for all patch methods of a grid alike."""

    preset: MethodConfig = field(default_factory=MethodConfig)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    k: KConfig = field(default_factory=KConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    refresh: RefreshConfig = field(default_factory=RefreshConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)


def to_plain(config: ExperimentConfig) -> dict[str, Any]:
    """Nested plain dict of a config: enums as their names."""
    plain = _plain(config)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    # By hand: OmegaConf takes fifty times as long for the same, and a grid has a thousand cells.
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
