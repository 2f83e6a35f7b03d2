"""The text encoders of a pipeline as CUDA graphs: hundreds of kernels, each shorter than its launch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import masking_utils

from otil_exp.cuda_graphs import Captured, Record
from otil_exp.models.families import Pipeline, family_of


def replay_text_encoders(pipeline: Pipeline, record: Record) -> ExitStack:
    """Let a pipeline replay its text encoders. Returns what puts them back and drops the graphs."""
    undo = ExitStack()
    for part in family_of(pipeline).text_encoders:
        encoder = getattr(pipeline, part)
        undo.callback(setattr, pipeline, part, encoder)
        setattr(pipeline, part, ReplayedTextEncoder(encoder, record))
    return undo


@dataclass(frozen=True)
class _Recorded:
    tokens: Tensor
    """Where the graph reads them."""

    captured: Captured[Any]


class ReplayedTextEncoder(nn.Module):
    """A text encoder behind its own interface: the first call of a kind is recorded, and replayed from then on.

    A pipeline pads every prompt to the same length, so that all its calls are of one kind: the empty prompt that it is
    made ready with has recorded it before the first picture.
    """

    def __init__(self, encoder: nn.Module, record: Record) -> None:
        super().__init__()
        self.encoder = encoder
        self._record = record
        self._recorded: dict[Any, _Recorded] = {}

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **options: bool) -> Any:
        """What the encoder returns for input_ids (b, tokens), int64: tensors that later calls do not overwrite."""
        if attention_mask is not None:  # the encoder looks at its values on the host, which no graph can
            return self.encoder(input_ids, attention_mask=attention_mask, **options)
        kind = (input_ids.shape, *sorted(options.items()))
        if kind not in self._recorded:
            self._recorded[kind] = self._capture(input_ids.clone(), options)
        recorded = self._recorded[kind]
        recorded.tokens.copy_(input_ids)
        recorded.captured.replay()
        return tree_map_only(Tensor, torch.clone, recorded.captured.output)

    @property
    def config(self) -> Any:
        return self.encoder.config

    @property
    def dtype(self) -> Any:
        return self.encoder.dtype

    @property
    def device(self) -> Any:
        return self.encoder.device

    def _capture(self, tokens: Tensor, options: dict[str, bool]) -> _Recorded:
        with _masks_as_called():
            self.encoder(tokens, **options)  # libraries start up here, which a capture could not bear
            return _Recorded(tokens, self._record(lambda: self.encoder(tokens, **options)))


@contextmanager
def _masks_as_called() -> Iterator[None]:
    """Within it transformers leaves the causal mask to the kernel of attention, as in a call.

    While a stream is captured some versions (5.17; 5.24 does not) make the mask a tensor. Attention with one is another
    kernel, which rounds otherwise.
    """
    asked = masking_utils.is_tracing
    masking_utils.is_tracing = lambda *_: False
    try:
        yield
    finally:
        masking_utils.is_tracing = asked
