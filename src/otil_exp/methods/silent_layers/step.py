"""A step of guide, otil and balanced on one rank, from the latents that the UNet gets to those of the next step."""

from __future__ import annotations

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import GnSync
from otil_exp.config import ExperimentConfig
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange import Codec, LatentExchange, ReplayedExchange, repair_pair
from otil_exp.methods.codec_scope import codec_of
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.methods.patch_step import PatchOnRank
from otil_exp.methods.selection_rules import grid_of
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.rank_unet.assemblies import GatherSlices, KeepOwnSlice
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.kinds import synchronous_or_rolling, synchronous_or_silent
from otil_exp.schedule import Step
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter


class SilentLayersOnRank(PatchOnRank):
    """The layers of this rank's rows exchange everything in a synchronous step, and nothing in a silent one."""

    def __init__(
        self, config: ExperimentConfig, ranks: RankContext, unet: UNet2DConditionModel, traffic: TrafficCounter
    ) -> None:
        assert isinstance(config.preset, SilentLayersConfig)
        preset = config.preset
        gn_sync, rolling = gn_sync_of(preset.gn_sync), config.refresh.period if config.refresh.rolling else 0
        mode, kinds = "no_sync", synchronous_or_silent(config.warmup_steps)
        if rolling:  # those whose turn it is are layers of a mode that is one step late
            mode = "sync_gn" if gn_sync is GnSync.exact else "separate_gn"
            kinds = synchronous_or_rolling(config.warmup_steps, rolling)
        super().__init__(config, ranks, unet, traffic, mode=mode, kinds=kinds, gn_sync=gn_sync, rolling=rolling)
        repaired = preset.cfg_repair and ranks.topology.split_batch
        self._assemble = (
            GatherSlices(ranks, codec=_codec(config))
            if preset.noise_gather
            else KeepOwnSlice(ranks, repair_pair if repaired else None)
        )
        self._blocks: LatentExchange | ReplayedExchange | None = _latent_exchange(config, ranks)

    def prepare(self, inputs: StepInputs) -> None:
        super().prepare(inputs)
        if isinstance(self._blocks, LatentExchange) and self._blocks.replayable and self.captured:
            self._blocks = ReplayedExchange(self._blocks, self._traffic, CudaGraphRecorder())
            self._blocks.prepare(inputs.sample[:1])

    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        """Own rows through the layers; then all rows are gathered, or only the own ones are new."""
        return self._assemble(self.run_layers(inputs, step), step)

    def exchange(self, latents: torch.Tensor, step: Step) -> torch.Tensor:
        """After the scheduler step: k blocks of every slice, or the exact whole latent."""
        if self._blocks is None:
            return latents
        if step.kind == "steady":
            return self._blocks.step(latents)
        if step.kind != "warmup":
            # A refresh brings the exact noise prediction, but what it is subtracted from was stale in remote slices.
            latents = self._blocks.finalize(latents)
        self._blocks.remember(latents)
        return latents

    def close(self) -> None:
        super().close()
        self._blocks = None  # NCCL does not end before the graphs that hold its collectives


def _latent_exchange(config: ExperimentConfig, ranks: RankContext) -> LatentExchange | None:
    assert isinstance(config.preset, SilentLayersConfig)
    transmit = config.preset.transmit
    if transmit is None:
        return None
    return LatentExchange(
        grid_of(transmit, config),
        slice_index=ranks.slice_index,
        slices=ranks.topology.slices,
        k=int(config.k.budget),
        score=transmit.score,
        against=transmit.against,
        polling=transmit.polling,
        group=ranks.batch_group,
    )


def _codec(config: ExperimentConfig) -> Codec | None:
    """How a gathered noise prediction is written down; None as it is."""
    if config.codec.quantizer == "none":
        return None
    return codec_of(config)


build = SilentLayersOnRank
