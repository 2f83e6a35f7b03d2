"""Keys and values of the text: the same in all steps of a picture, so computed once and kept where layers read them.

In every attention to the text (attn2 of a transformer block) the projections of the text are taken out, and what stands
in their place returns what they gave for this picture. So a stage needs none of their weights: whoever has the
projections computes for all stages. Of SDXL they are 650 MiB in half precision, 13.3 % of the weights.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from otil_exp.stages.parts import SegmentCall

PROJECTIONS = ("to_k", "to_v", "to_kv")
"""Of the text, in an attention to it: as diffusers has them, or merged into one."""


class KeptOutput(nn.Module):
    """Stands for a projection of the text and returns its output, which stays at one address."""

    output: Tensor | None
    """(b, tokens, features); None until the first one is given."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("output", None, persistent=False)

    def give(self, output: Tensor) -> None:
        """Return this from now on: the first tensor itself, which has to stay, and the values of later ones in it."""
        if self.output is None:
            self.output = output
        elif self.output.data_ptr() != output.data_ptr():
            self.output.copy_(output)

    def forward(self, text: Tensor) -> Tensor:
        """text: (b, tokens, width), not read."""
        assert self.output is not None, "a picture begins with the keys and values of its text"
        return self.output


def take_projections(unet: nn.Module) -> dict[KeptOutput, nn.Linear]:
    """Take all projections of the text out of a UNet, in place. Returns what now stands where each one was."""
    taken: dict[KeptOutput, nn.Linear] = {}
    for name, attention in unet.named_modules():
        if name.rpartition(".")[2] != "attn2":
            continue
        for projection in PROJECTIONS:
            if (linear := getattr(attention, projection, None)) is not None:
                kept = KeptOutput(linear.out_features)
                setattr(attention, projection, kept)
                taken[kept] = linear
    return taken


def kept_outputs(calls: Iterable[SegmentCall]) -> list[KeptOutput]:
    """What these segments read, in the order in which they do."""
    modules = [module for call in calls for used in call.modules_used() for module in used.modules()]
    return [module for module in modules if isinstance(module, KeptOutput)]
