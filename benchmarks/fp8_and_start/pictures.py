"""What fp8 products do to pictures: a grid made with and without them, picture by picture.

    otil-exp -m preset=... engine.products=model_dtype,fp8 name=NAME
    python -m benchmarks.fp8_and_start.pictures outputs/NAME

Of each method: PSNR of its fp8 pictures against its own without, mean and worst; PSNR of both against the reference
without; values that were cut. Then the order of the methods by that PSNR, both ways.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from PIL import Image

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.naming import short_name


@dataclass(frozen=True)
class Made:
    """The finished pictures of a run."""

    folder: RunFolder

    @property
    def name(self) -> str:
        return short_name(self.folder.record)

    @property
    def quantised(self) -> bool:
        return "products" in self.folder.record

    def picture(self, index: int) -> np.ndarray:
        return np.asarray(Image.open(self.folder.image_path(index)).convert("RGB"), dtype=np.float64)


def main() -> int:
    found = [Made(RunFolder(path.parent)) for path in sorted(Path(sys.argv[1]).glob("*/record.json"))]
    found = [made for made in found if made.folder.record.get("status") == "done"]
    print(*table(found), sep="\n")
    return 0


def table(found: Sequence[Made]) -> list[str]:
    """Markdown: a row a method, and the order of the methods."""
    plain = {made.name: made for made in found if not made.quantised}
    quantised = {made.name: made for made in found if made.quantised}
    (reference,) = (made for made in plain.values() if made.folder.record["is_reference"])
    indices = [prompt["index"] for prompt in reference.folder.record["prompts"]]

    def against(one: Made, other: Made) -> list[float]:
        return [psnr(one.picture(index), other.picture(index)) for index in indices]

    lines = [
        "| method | fp8 against its own without, dB: mean (worst) | without, against the reference | fp8, against it "
        "| values cut |",
        "|---|---|---|---|---|",
    ]
    means: dict[bool, dict[str, float]] = {False: {}, True: {}}
    for name in sorted(plain.keys() & quantised.keys()):
        own = against(quantised[name], plain[name])
        to_reference = {made.quantised: fmean(against(made, reference)) for made in (plain[name], quantised[name])}
        if name != reference.name:
            for which, mean in to_reference.items():
                means[which][name] = mean
        without = "-" if name == reference.name else f"{to_reference[False]:.2f}"
        cut = quantised[name].folder.record["products"]["overflow"]
        lines.append(f"| {name} | {fmean(own):.1f} ({min(own):.1f}) | {without} | {to_reference[True]:.2f} | {cut} |")
    orders = [", ".join(sorted(one, key=lambda name: -one[name])) for one in means.values()]
    return [*lines, "", f"Order without: {orders[0]}.", f"Order with fp8: {orders[1]}."]


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """dB, of pixels from 0 to 255; infinite for equal pictures."""
    error = float(np.mean((one - other) ** 2))
    return 10 * np.log10(255**2 / error) if error else float("inf")


if __name__ == "__main__":
    sys.exit(main())
