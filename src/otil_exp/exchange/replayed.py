"""The exchange of latent blocks as one CUDA graph."""

from __future__ import annotations

from torch import Tensor

from otil_exp.cuda_graphs import Record
from otil_exp.exchange.transmit import LatentExchange
from otil_exp.traffic import TrafficCounter


class ReplayedExchange:
    """A LatentExchange whose exchange is recorded once and replayed: three launches a step instead of more than twenty.

    Like a LatentExchange to its caller, but `prepare` comes first.
    """

    def __init__(self, exchange: LatentExchange, traffic: TrafficCounter, record: Record) -> None:
        """exchange: of a score that computes the same at each step (`replayable`). traffic: told of the graph's
        collectives at each replay, which calls no Python. record: makes a graph."""
        assert exchange.replayable, "chances drawn while a graph is recorded would be the same in every step"
        self._exchange, self._traffic, self._record = exchange, traffic, record

    def prepare(self, latents: Tensor) -> None:
        """Record a step. latents: any of the right shape and dtype, (1, C, H, W). All ranks must call it."""
        self._exchange.remember(latents)
        self._fresh = self._exchange.own_blocks(latents)
        self._exchange.exchange(self._fresh)  # communicators start up here, which a capture could not bear
        with self._traffic.installed(), self._traffic.recording() as self._sent:
            self._captured = self._record(lambda: self._exchange.exchange(self._fresh))

    def remember(self, latents: Tensor) -> None:
        """As LatentExchange.remember."""
        self._exchange.remember(latents)

    def step(self, latents: Tensor) -> Tensor:
        """As LatentExchange.step."""
        self._exchange.own_blocks(latents, out=self._fresh)
        self._captured.replay()
        self._traffic.add(self._sent)
        return self._exchange.join(self._captured.output)

    def finalize(self, latents: Tensor) -> Tensor:
        """As LatentExchange.finalize."""
        return self._exchange.finalize(latents)
