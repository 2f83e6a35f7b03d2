"""What was run, where all runs of a report agree, and what the report's words mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otil_exp.report.collect import Run
from otil_exp.report.comparable import engine, machine, model, size
from otil_exp.report.paired import NEEDED_IN_WORDS

GLOSSARY = {
    "rank": "one process of a run, usually one GPU; rank 0 keeps time.",
    "topology": "how many ranks, and whether the two halves of the guidance batch live on different ranks (split).",
    "slice": "the rows of the picture that a rank computes; where slices meet, a seam may show.",
    "stage": "the layers of a UNet, cut by depth, that a rank computes, for the whole picture.",
    "oldest, steps": "most steps between a step and the latent that a part of its prediction was made of.",
    "reference": "the same model, prompts and seeds on one GPU; what quality is judged against.",
    "warm-up": "the first steps, which exchange everything at once; step times and bytes are means over those after.",
    "k": "blocks of a slice that are sent a step.",
    "refresh": "steps that exchange everything again: every so many (every10), or a part of it in each (rolling10).",
    "seam, levels": "how much more the picture steps where slices meet than the reference does there, in grey levels "
    "of 255.",
    "PSNR, SSIM, LPIPS": "closeness of a picture to the reference's of the same prompt and seed, then the mean over "
    "prompts.",
    "FID": "distance between two sets of pictures; it falls with their number n, so compare equal n alone. w/ orig.: "
    "to the reference's pictures; w/ GT: to the ground truth's.",
    "±": "standard error of the mean over prompts. It also holds how different prompts are: two methods on the same "
    "prompts are told apart by their paired difference, which is much finer.",
    "≈": "not told apart from the best: over the same prompts, chance leaves such a paired difference in more than 5 % "
    f"of cases ({NEEDED_IN_WORDS}).",
}
"""The words of a report, in plain ones."""


def shared_facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What was run, where all runs agree; what differs is in the warnings."""
    begun = [run for run in runs if run.record and run.config]
    found = []
    for name, words in FACTS.items():
        values = {value for run in begun if (value := words(run))}
        if len(values) == 1:
            found.append((name, values.pop()))
    return found


def versions(run: Run) -> str:
    """Package versions of a run: torch 2.11.0, diffusers 0.42.1, ..."""
    return ", ".join(f"{name} {version}" for name, version in run.record.get("versions", {}).items() if version)


def command(runs: Sequence[Run]) -> list[str]:
    """What was typed to make these runs, each command once; empty where the records do not say."""
    return list(dict.fromkeys(str(run.record["command"]) for run in runs if run.record.get("command")))


def _setting(key: str) -> Callable[[Run], str]:
    return lambda run: str(run.config.get(key, ""))


def _warmup(run: Run) -> str:
    """Steps of methods that have a warm-up; empty for the others, so that they do not count as different."""
    steps = run.record.get("effective", {}).get("warmup_steps")
    return "" if steps is None else f"{steps} steps"


def _seeds(run: Run) -> str:
    """seed 0 for all, or 0 to 9"""
    seeds = sorted({prompt["seed"] for prompt in run.prompts})
    if len(seeds) < 2:
        return f"{seeds[0]} for all" if seeds else ""
    return f"{seeds[0]} to {seeds[-1]}" + ("" if seeds[-1] - seeds[0] + 1 == len(seeds) else f", {len(seeds)} of them")


FACTS: dict[str, Callable[[Run], str]] = {
    "model": model,
    "size": size,
    "steps": _setting("num_inference_steps"),
    "warm-up": _warmup,
    "guidance": _setting("guidance_scale"),
    "scheduler": _setting("scheduler"),
    "engine": engine,
    "prompts": lambda run: str(len(run.prompts)),
    "seeds": _seeds,
    "machine": machine,
    "versions": versions,
}
