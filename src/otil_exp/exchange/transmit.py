"""Exchange the k most informative blocks of each slice after a silent step, in two collectives."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch import distributed as dist

from otil_exp.choices import Against
from otil_exp.exchange.blocks import BlockGrid
from otil_exp.exchange.gather import gather
from otil_exp.exchange.polling import Polling
from otil_exp.exchange.score import SCORES


class LatentExchange:
    """What a rank knows of the other slices' latent, and how it renews it.

    After a synchronous step call `remember`, after a silent one `step`, before the VAE `finalize`. Between them a
    rank's own slice is bit-exact fresh and every remote block is one that was received or the last one known, never a
    blend; ranks may therefore disagree about remote blocks until `finalize`.
    A step is two collectives of fixed shapes and never makes the host wait for the device.
    """

    def __init__(
        self,
        grid: BlockGrid,
        slice_index: int,
        slices: int,
        k: int,
        score: str = "cosine",
        against: Against = Against.previous_step,
        polling: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Set up the exchange of one rank.

        grid: blocks of a slice. slice_index, slices: this rank's slice, counted from the top, and how many there are.
        k: blocks sent a step. score: a name in SCORES. against: a block is compared with itself at the previous step
        or as it was last sent. polling: every block once a round (Polling). group: the ranks of the slices of one
        batch half, in slice order (None: the default group); with one slice there is nobody to talk to.
        Raises ValueError for a k or score that does not exist.
        """
        if not 1 <= k <= grid.count:
            raise ValueError(f"k={k}: a step sends 1 to {grid.count} blocks of a slice (resolve_budget gives such a k)")
        if score not in SCORES:
            raise ValueError(f"score={score}: use one of {', '.join(SCORES)}")
        assert 0 <= slice_index < slices
        if slices > 1:
            assert dist.get_world_size(group) == slices, "one rank a slice"
            assert dist.get_rank(group) == slice_index, "the group's order is the slices' order"
        self.grid, self.slice_index, self.slices, self.k = grid, slice_index, slices, k
        self.against, self.polling, self.group = against, polling, group
        self.replayable = slices > 1 and SCORES[score].repeats
        """Whether a step is worth recording in a CUDA graph, and computes the same whenever it is replayed."""
        self._make_score = SCORES[score].make
        # Slices are horizontal, so the blocks of the whole latent, row by row, are those of slice 0, of slice 1, ...
        self._whole = replace(grid, rows=grid.rows * slices)
        self._memory: Tensor | None = None  # what is known, (slices, K, C, b, b); in the same place for all pictures

    def remember(self, latents: Tensor) -> None:
        """Take the whole latent (1, C, H, W), exact on every rank, after a synchronous step; a round begins."""
        if self.slices == 1:
            return
        blocks = self._whole.split(latents).unflatten(0, (self.slices, self.grid.count))
        if self._memory is None:
            self._memory = torch.empty_like(blocks)
            self._before = self._memory[self.slice_index]  # what the next step's blocks are compared with
            if self.against is Against.last_sent:
                self._before = torch.empty_like(self._before)
            self._starts = self.grid.count * torch.arange(self.slices, device=latents.device)[:, None]
            self._rounds = Polling(self.grid.count, enabled=self.polling, device=latents.device)
        self._memory.copy_(blocks)
        self._before.copy_(blocks[self.slice_index])
        self._score = self._make_score()
        self._rounds.restart()

    def step(self, latents: Tensor) -> Tensor:
        """Exchange blocks after the scheduler step of a silent step.

        latents: (1, C, H, W), of which only this rank's slice is read. Returns the whole latent as this rank now knows
        it, same shape and dtype, in memory of its own.
        """
        if self.slices == 1:
            return latents
        return self.join(self.exchange(self.own_blocks(latents)))

    def own_blocks(self, latents: Tensor, out: Tensor | None = None) -> Tensor:
        """The first part of a step: copy this rank's blocks (K, C, b, b) out of a latent (1, C, H, W)."""
        return self.grid.split(self._own(latents), out)

    def exchange(self, fresh: Tensor) -> Tensor:
        """The second part, with the collectives. fresh: own_blocks. Returns what is now known, for `join` alone."""
        assert self._memory is not None, "remember the latent of a synchronous step first"
        chosen = self._rounds.choose(self._score(fresh, self._before), self.k)
        payload = fresh.index_select(0, chosen)
        # int64 as topk gives it and index_copy_ wants it: 8 bytes beside a block's hundreds cost less than two casts.
        positions = gather(chosen, self.group) + self._starts
        received = gather(payload, self.group)
        self._memory.flatten(0, 1).index_copy_(0, positions.flatten(), received.flatten(0, 1))
        self._memory[self.slice_index].copy_(fresh)
        if self.against is Against.last_sent:
            self._before.index_copy_(0, chosen, payload)
        return self._memory

    def join(self, known: Tensor) -> Tensor:
        """The third part: copy what `exchange` returned into a whole latent (1, C, H, W)."""
        return self._whole.join(known.flatten(0, 1))

    def finalize(self, latents: Tensor) -> Tensor:
        """Gather the exact slices: every rank returns the same exact latent (1, C, H, W), by one collective."""
        if self.slices == 1:
            return latents
        slices = gather(self._own(latents)[0], self.group)  # (slices, C, rows, W)
        return slices.transpose(0, 1).reshape(latents.shape)

    def _own(self, latents: Tensor) -> Tensor:
        """View this rank's slice (1, C, rows, W) of a whole latent."""
        assert latents.shape[2] == self._whole.rows, f"{tuple(latents.shape)} is not {self._whole}"
        return latents.narrow(2, self.slice_index * self.grid.rows, self.grid.rows)
