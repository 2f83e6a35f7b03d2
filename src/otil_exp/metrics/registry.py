"""All metrics: one entry each, from which scoring, metrics.json, tables, the report and docs/metrics.md follow.

A new score against the reference picture: docs/extending.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otil_exp.config import MetricsConfig
from otil_exp.metrics.metric import GROUND_TRUTH, REFERENCE, SEAMS, Metric, PairScore
from otil_exp.metrics.sizes import EFFNET_FEATURES, PSNR_CAP_DB, SHAPES, SSIM_WINDOW
from otil_exp.shapes import FEATURES

if TYPE_CHECKING:  # seconds; wanted by those who score, not by tables of scores
    import torch


def _psnr(settings: MetricsConfig, device: torch.device | str) -> PairScore:
    from otil_exp.metrics.pairwise import psnr

    return psnr


def _ssim(settings: MetricsConfig, device: torch.device | str) -> PairScore:
    from otil_exp.metrics.pairwise import ssim

    return ssim


def _perceptual(name: str, weights: Path | None, device: torch.device | str) -> PairScore:
    from otil_exp.metrics.perceptual import PerceptualDistance

    return PerceptualDistance.load(name, weights, device)


def _alexnet(settings: MetricsConfig) -> Path | None:
    return Path(settings.alexnet_weights) if settings.alexnet_weights else None


def _check_alexnet(settings: MetricsConfig) -> object:
    from otil_exp.metrics.perceptual import find_alexnet

    return find_alexnet(_alexnet(settings))


def _check_text_image(settings: MetricsConfig) -> None:
    from otil_exp.metrics.text_image import check_text_image

    check_text_image(str(settings.text_image))


COST = (
    Metric(key="latency/step_ms", title="ms/step", unit="ms", better=-1, form=".1f", delta="speedup", core=True),
    Metric(key="latency/step_ms_all", title="ms/step, all", unit="ms", better=-1, form=".1f", delta="speedup"),
    Metric(key="latency/warmup_ms", title="ms/warm-up step", unit="ms", better=-1, form=".2f", delta="speedup"),
    Metric(key="latency/steady_ms", title="ms/steady step", unit="ms", better=-1, form=".2f", delta="speedup"),
    Metric(key="latency/refresh_ms", title="ms/refresh step", unit="ms", better=-1, form=".2f", delta="speedup"),
    Metric(key="latency/image_s", title="s/image", unit="s", better=-1, form=".2f", delta="speedup", core=True),
    Metric(key="traffic/bytes_sent_per_step", title="MB/step", unit="B", better=-1, scale=1e-6, form=".3f", core=True),
    Metric(key="traffic/bytes_sent_per_step_all", title="MB/step, all", unit="B", better=-1, scale=1e-6, form=".3f"),
    Metric(key="traffic/collectives_per_step", title="collectives per step", better=-1, form=".1f", core=True),
    Metric(key="traffic/collectives_per_step_all", title="collectives per step, all", better=-1, form=".1f"),
    Metric(key="memory/peak_mib", title="peak memory, MiB", unit="MiB", better=-1, form=".0f", delta="difference"),
)
"""What a run cost: always there."""

STAGES = (
    Metric(key="stages/count", title="stages", form=".0f", core=True),
    Metric(key="stages/oldest", title="oldest, steps", unit="steps", form=".0f", core=True),
)
"""How a UNet was cut by depth: there for methods that do so."""

PAIRED = (
    Metric(
        key="ref/psnr",
        title="PSNR dB",
        unit="dB",
        better=1,
        form=".2f",
        core=True,
        needs=(REFERENCE,),
        wanted=lambda settings: settings.psnr or "psnr" in settings.paired,
        load=_psnr,
        cap=PSNR_CAP_DB,
    ),
    Metric(
        key="ref/ssim",
        title="SSIM",
        better=1,
        form=".4f",
        core=True,
        needs=(REFERENCE,),
        wanted=lambda settings: settings.ssim or "ssim" in settings.paired,
        load=_ssim,
        min_side=SSIM_WINDOW,
    ),
    Metric(
        key="ref/lpips_alex",
        title="LPIPS",
        better=-1,
        form=".4f",
        core=True,
        needs=(REFERENCE,),
        wanted=lambda settings: "lpips_alex" in (settings.perceptual, *settings.paired),
        load=lambda settings, device: _perceptual("lpips_alex", _alexnet(settings), device),
        check_files=_check_alexnet,
        model="lpips_alex",
        min_side=64,
    ),
    Metric(
        key="ref/effnet_lite0_5stage",
        title="EfficientNet distance",
        better=-1,
        form=".4f",
        core=True,
        needs=(REFERENCE,),
        wanted=lambda settings: "effnet_lite0_5stage" in (settings.perceptual, *settings.paired),
        load=lambda settings, device: _perceptual("effnet_lite0_5stage", None, device),
        model="effnet_lite0_5stage",
        min_side=32,
    ),
)
"""Scores of a picture against the reference picture of the same prompt and seed."""

_ALONE = (
    ("step_z", "step z", "1"),
    ("step_levels", "step, levels", "levels"),
    ("band_levels", "band step, levels", "levels"),
    ("band_z", "band step z", "1"),
    ("grad_log2", "gradient, octaves", "octaves"),
    ("sharp_log2", "sharpness, octaves", "octaves"),
)
"""Seam statistics of one picture: name, head of the column, unit; a level is 1/255."""

SEAMS_ALONE = tuple(
    Metric(
        key=f"seam/{name}",
        title=f"seam {title}",
        unit=unit,
        delta="natural",
        needs=(SEAMS,),
        wanted=lambda settings: settings.seams,
    )
    for name, title, unit in _ALONE
) + tuple(
    Metric(
        key=f"reference/{name}",
        title=f"reference's {title}",
        unit=unit,
        needs=(REFERENCE, SEAMS),
        wanted=lambda settings: settings.seams,
    )
    for name, title, unit in _ALONE
)
"""At the boundaries of the slices: of the picture, and of the reference picture at the same rows."""


def _seam_paired(name: str, title: str, unit: str, better: int = 0, form: str = ".3g", core: bool = False) -> Metric:
    return Metric(
        key=f"ref/{name}",
        title=title,
        unit=unit,
        better=better,
        form=form,
        core=core,
        needs=(REFERENCE, SEAMS),
        wanted=lambda settings: settings.seams,
    )


SEAMS_PAIRED = (
    _seam_paired("step_levels", "seam, levels", "levels", -1, ".2f", core=True),
    _seam_paired("step_levels_red", "seam, red levels", "levels"),
    _seam_paired("step_levels_green", "seam, green levels", "levels"),
    _seam_paired("step_levels_blue", "seam, blue levels", "levels"),
    _seam_paired("step1_levels", "seam of one row, levels", "levels", -1, ".2f"),
    _seam_paired("gain_db", "contrast change, dB", "dB"),
    _seam_paired("ser_db", "error near to far, dB", "dB"),
    _seam_paired("gain_z", "contrast change z", "1"),
    _seam_paired("ser_z", "error near z", "1"),
    _seam_paired("psnr_near", "PSNR near, dB", "dB", 1, ".2f"),
    _seam_paired("psnr_far", "PSNR far, dB", "dB", 1, ".2f"),
)
"""At the same places, the difference between picture and reference picture."""


def _sets(extractor: str, size: int, frechet: tuple[str, str], kernel: tuple[str, str, float]) -> tuple[Metric, ...]:
    """Frechet (key, title) and kernel distance (key, title, scale) of an extractor's features, to both other sets."""

    def files(settings: MetricsConfig) -> object:
        from otil_exp.metrics.extractors import INCEPTIONS, inception_weights

        return inception_weights(settings.inception_weights) if extractor in INCEPTIONS else None

    def metric(name: str, title: str, against: str, scale: float = 1, *, enough: int, core: bool = False) -> Metric:
        of_reference = against == "orig"
        return Metric(
            key=f"{name}/{against}",
            title=f"{title} {'w/ orig.' if of_reference else 'w/ GT'}",
            better=-1,
            scale=scale,
            form=".2f",
            delta="" if of_reference else "difference",
            core=core,
            enough=enough,
            needs=(REFERENCE,) if of_reference else (GROUND_TRUTH,),
            wanted=lambda settings: extractor in settings.extractors and (of_reference or bool(settings.ground_truth)),
            check_files=files,
            model=extractor,
            min_side=32 if extractor == "effnet_lite0" else 1,
        )

    return tuple(
        each
        for against in ("orig", "gt")
        for each in (
            metric(*frechet, against, enough=10 * size, core=frechet[0] in ("fid", "fid_clean")),
            metric(*kernel[:2], against, kernel[2], enough=KERNEL_ENOUGH),
        )
    )


KERNEL_ENOUGH = 50
"""From there on a kernel distance of sets that differ by a tenth of a deviation in every feature is more than five of
its standard errors; at 20 pictures it is three, at 10 less than two (200 simulated pairs of sets, 64 features)."""

SETS = (
    *_sets("inception", 2048, ("fid", "FID"), ("kid", "KID x 1000", 1e3)),
    *_sets("inception_clean", 2048, ("fid_clean", "clean-FID"), ("kid_clean", "clean-KID x 1000", 1e3)),
    *_sets(
        "effnet_lite0",
        EFFNET_FEATURES,
        ("frechet_effnet_lite0", "Frechet (EfficientNet)"),
        ("kernel_effnet_lite0", "kernel distance x 1000 (EfficientNet)", 1e3),
    ),
    *_sets(
        "shapes_classifier",
        FEATURES,
        ("frechet_shapes", "Frechet (shapes)"),
        ("kernel_shapes", "kernel distance / 1000 (shapes)", 1e-3),
    ),
)
"""Distances between the run's pictures and another set. Features of the shapes classifier are large, those of
Inception and EfficientNet small, and the kernel is their cube: hence the scales."""

TEXT = (
    Metric(
        key="text/clip_score",
        title="CLIP score",
        better=1,
        form=".2f",
        delta="difference",
        core=True,
        wanted=lambda settings: settings.text_image not in (None, SHAPES),
        check_files=_check_text_image,
    ),
    Metric(
        key="text/shapes_text_image",
        title="text-image score (shapes)",
        better=1,
        form=".2f",
        delta="difference",
        wanted=lambda settings: settings.text_image == SHAPES,
        model=SHAPES,
    ),
)
"""How well pictures fit their captions."""

METRICS = (*COST, *STAGES, *PAIRED, *SEAMS_PAIRED, *SETS, *TEXT, *SEAMS_ALONE)
"""All of them, in the order of the report's columns."""

_BY_KEY = {metric.key: metric for metric in METRICS}


def lookup(key: str) -> Metric:
    """The entry of a key; one that says no more than the key for keys of other versions."""
    return _BY_KEY.get(key, Metric(key=key, title=key))


def paired_names() -> list[str]:
    """Names that metrics.paired takes."""
    return [metric.name for metric in PAIRED]
