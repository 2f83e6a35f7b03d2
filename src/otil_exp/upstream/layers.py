"""The wrapped layers of a UNet, and the buffers they exchange context through."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import StaleSums, TensorLayers
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.upstream.context import ContextManager
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import (
    BaseModel,
    BaseModule,
    DistriConv2dPP,
    DistriGroupNorm,
    DistriSelfAttentionPP,
    DistriUNetPP,
    DistriUNetTP,
    PatchParallelismCommManager,
)
from otil_exp.upstream.stale_sums import make_stale

_WRAPPERS: dict[str, type[BaseModel]] = {"patch": DistriUNetPP, "tensor": DistriUNetTP}


class Layers:
    """A UNet whose layers know of the other slices; wraps the layers of the given UNet in place.

    Two ranks or more share a picture or its layers. A rank without peers has PlainLayers (otil_exp.rank_unet).
    """

    def __init__(
        self,
        unet: UNet2DConditionModel,
        config: RankConfig,
        *,
        own_statistics: bool = False,
        fused_statistics: bool = False,
        stale: StaleSums | None = None,
        stale_layers: Sequence[TensorLayers] = (),
        holds_context: bool = False,
    ) -> None:
        """own_statistics: GroupNorm exchanges fp32 statistics through a buffer of its own (exact_groupnorm).
        fused_statistics: GroupNorm goes on exchanging them in mode no_sync, as in corrected_async_gn.
        stale, stale_layers: which sums of tensor parallelism come late (stale_sums).
        holds_context: after a step that is not synchronous the layers send nothing, and keep what an exchange sends.
        """
        assert config.n_device_per_batch > 1, "a rank without peers keeps diffusers' layers"
        self._config = config
        self._own_statistics = own_statistics or fused_statistics
        self._holds_context = holds_context
        self._managers: list[Any] = []
        self._wrapper = _WRAPPERS[config.parallelism](unet, config)
        self.unet = unet.requires_grad_(False)  # the new weights that the wrapper made, too
        # Upstream looks for these among all modules, 1,930 of SDXL, in every step (base_model.py:29): about 5 ms.
        self._counting = [module for module in unet.modules() if isinstance(module, BaseModule)]
        if fused_statistics:
            self._fuse_statistics()
        self._sums = make_stale(unet, stale, stale_layers) if stale else []

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        """Run the UNet of the step whose counter was set."""
        return predict(self.unet, inputs)

    call_modules = __call__

    def set_counter(self, counter: int) -> None:
        """Tell every layer which step comes next: steps 0..warmup_steps are synchronous, 0 renews cached text K/V."""
        for layer in self._counting:
            layer.set_counter(counter)

    def register(self, call: Callable[[], Any]) -> None:
        """Make the exchange buffers: `call` runs the UNet once, in which every layer registers what it will send."""
        if self._config.parallelism != "patch":
            return
        if not self._holds_context:
            layers = PatchParallelismCommManager(self._config)
            self._wrapper.set_comm_manager(layers)
            self._managers = [layers]
        else:
            self._managers = [self._manager(DistriSelfAttentionPP), self._manager(DistriConv2dPP)]
        if self._own_statistics:
            self._managers.append(self._manager(DistriGroupNorm))
        self.set_counter(0)
        call()
        for manager in self._managers:
            if manager.numel > 0:
                manager.create_buffer()

    @property
    def context(self) -> tuple[ContextManager, ContextManager]:
        """Of layers that hold it, after `register`: K/V of self-attention, and halo rows of convolutions."""
        assert self._holds_context
        keys_values, halos = self._managers[:2]
        return keys_values, halos

    def after_step(self) -> None:
        """distrifuser's layers send while they compute."""

    def wait(self) -> None:
        """Wait for the exchanges that are under way; what is queued stays queued (base_model.py:46)."""
        for layer_sum in self._sums:
            layer_sum.wait()
        for manager in self._managers:
            for index, handle in enumerate(manager.handles or ()):
                if handle is not None:
                    handle.wait()
                    manager.handles[index] = None

    def clear(self) -> None:
        """Send what is queued and wait for everything, so that nothing is pending. All ranks must call it."""
        for layer_sum in self._sums:
            layer_sum.wait()
        for manager in self._managers:
            manager.clear()

    def _fuse_statistics(self) -> None:
        """Let GroupNorm alone run in mode corrected_async_gn, with one collective for a whole step (comm_queue)."""
        config = copy(self._config)
        config.mode, config.comm_checkpoint = "corrected_async_gn", sys.maxsize
        for module in self.unet.modules():
            if isinstance(module, DistriGroupNorm):
                module.distri_config = config

    def _manager(self, kind: type[BaseModule]) -> PatchParallelismCommManager:
        """A manager for one kind of layers alone.

        GroupNorm's statistics are fp32, and one manager holds one dtype (utils.py:136); context that is exchanged block
        by block is kept apart by what a block means in it.
        """
        manager = (ContextManager if self._holds_context else PatchParallelismCommManager)(self._config)
        for module in self.unet.modules():
            if isinstance(module, kind):
                module.set_comm_manager(manager)
        return manager
