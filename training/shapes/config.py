"""Everything that decides what the training makes."""

from dataclasses import dataclass, field, replace


@dataclass(kw_only=True, slots=True)
class Stage:
    """How long one network trains, and how fast."""

    batch: int
    """Pictures a step."""

    learning_rate: float
    """AdamW's peak; reached after `warmup` steps, then a cosine to zero."""

    seconds: float
    """Time for the stage where `steps` is None: after a few steps the pace is measured and their number fixed."""

    steps: int | None = None
    """Number of steps. The defaults below are those of the shipped weights."""

    warmup: int = 200
    """Steps over which the learning rate rises."""

    weight_decay: float = 1e-4


@dataclass(kw_only=True, slots=True)
class Diffusion:
    """What the UNet is asked to predict, and how often."""

    drop_text: float = 0.1
    """Share of rows whose text is replaced by zeros: the unconditional half of guidance."""

    snr_cap: float = 5.0
    """min-SNR weighting: weight = min(snr, cap) / snr."""

    high_noise: float = 0.3
    """Share of rows whose timestep is drawn from 700..999 instead of 0..999."""

    pure_noise: float = 0.15
    """Share of rows that start as a sampler starts: no trace of the picture, at a timestep from 850..999."""

    ema: float = 0.999
    """Decay of the averaged weights; the averaged weights ship."""


@dataclass(kw_only=True, slots=True)
class TrainConfig:
    """The whole training, in the order of its stages."""

    seed: int = 0

    scenes: int = 65536
    """Scenes in the training pool, drawn once."""

    wordings: int = 2
    """Captions per scene."""

    vae: Stage = field(default_factory=lambda: Stage(batch=64, learning_rate=1.2e-3, seconds=150, steps=2384))
    classifier: Stage = field(default_factory=lambda: Stage(batch=256, learning_rate=2e-3, seconds=15, steps=2868))
    text_image: Stage = field(default_factory=lambda: Stage(batch=512, learning_rate=2e-3, seconds=25, steps=2376))
    unet: Stage = field(default_factory=lambda: Stage(batch=256, learning_rate=8e-4, seconds=150, steps=1396))
    diffusion: Diffusion = field(default_factory=Diffusion)

    probe_every: int = 1000
    """UNet steps between two readings of how well prompts are followed; each also saves the averaged weights."""

    probe_early: tuple[int, ...] = (500, 750, 1250, 1500)
    """Further steps after which prompts are read."""

    probe_captions: int = 96
    """Held-out captions a reading draws."""

    evaluate_captions: int = 200
    """Held-out captions of the final figures."""

    plain_steps: int = 1000
    """Steps of the comparison with the plain objective, where it is asked for."""

    sheet_captions: int = 32
    """Held-out captions on the sheet of samples, below its two rows of fixed prompts."""

    compile: bool = True
    """Compile the UNet's training step where there is a GPU."""


def by_time(config: TrainConfig) -> TrainConfig:
    """Let each stage's time decide its number of steps."""
    stages = {name: replace(getattr(config, name), steps=None) for name in ("vae", "classifier", "text_image", "unet")}
    return replace(config, **stages)


PLAIN = Diffusion(snr_cap=float("inf"), high_noise=0.0, pure_noise=0.0)
"""The usual objective: every timestep alike, no row that starts from pure noise."""


def smoke_config() -> TrainConfig:
    """Every stage, a few steps: does the script run?"""
    return TrainConfig(
        scenes=16,
        vae=Stage(batch=4, learning_rate=1e-3, seconds=1, steps=2),
        classifier=Stage(batch=8, learning_rate=2e-3, seconds=1, steps=4),
        text_image=Stage(batch=8, learning_rate=2e-3, seconds=1, steps=4),
        unet=Stage(batch=4, learning_rate=1e-3, seconds=1, steps=4),
        probe_every=3,
        probe_captions=4,
        evaluate_captions=4,
        plain_steps=2,
        sheet_captions=0,
        compile=False,
    )
