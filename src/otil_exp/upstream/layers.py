"""The wrapped layers of a UNet, and the buffers they exchange context through."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, cast

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import StaleSums, TensorLayers
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.kinds import FIRST
from otil_exp.schedule import Step
from otil_exp.upstream.context import CodedManager, ContextManager, LayerContext, MakeCoded
from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.forecast import ContextForecast
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
from otil_exp.upstream.rolling import RollingRenewal, own_config
from otil_exp.upstream.stale_sums import make_stale

_CONTEXTUAL = (DistriSelfAttentionPP, DistriConv2dPP)
"""Layers that exchange context other than statistics: keys and values, and halo rows."""

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
        coded: MakeCoded | None = None,
        rolling: int = 0,
        order: int = 0,
    ) -> None:
        """own_statistics: GroupNorm exchanges fp32 statistics through a buffer of its own (exact_groupnorm).
        fused_statistics: GroupNorm goes on exchanging them in mode no_sync, as in corrected_async_gn.
        stale, stale_layers: which sums of tensor parallelism come late (stale_sums).
        holds_context: after a step that is not synchronous the layers send nothing, and keep what an exchange sends.
        coded: context is sent in encoded bytes, in synchronous steps, too (patch context_gather).
        rolling: after warm-up a layer sends its context in every so manyth step, in its turn; 0: as the mode says.
        order: of the forecast of what is late: 0, as it is; 1, a line through the last two.
        """
        assert config.n_device_per_batch > 1, "a rank without peers keeps diffusers' layers"
        self._config = config
        self._own_statistics = own_statistics or fused_statistics
        self._holds_context, self._coded = holds_context, coded
        self._period, self._rolling = rolling, cast("RollingRenewal | None", None)
        self._managers: list[Any] = []
        self._wrapper = _WRAPPERS[config.parallelism](unet, config)
        self.unet = unet.requires_grad_(False)  # the new weights that the wrapper made, too
        # Upstream looks for these among all modules, 1,930 of SDXL, in every step (base_model.py:29): about 5 ms.
        self._counting = [module for module in unet.modules() if isinstance(module, BaseModule)]
        if fused_statistics:
            self._fuse_statistics()
        self._ahead = torch.ones((), device=config.device) if order else None
        self._sums = make_stale(unet, stale, stale_layers, self._ahead) if stale else []
        self._contextual = [module for module in self._counting if isinstance(module, _CONTEXTUAL)]
        if coded or rolling:
            self._give_own_configs()

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        """Run the UNet of the step that was set."""
        return predict(self.unet, inputs)

    call_modules = __call__

    def set_step(self, step: Step) -> None:
        """Tell every layer which step comes next: counter 0..warmup_steps is synchronous, 0 renews cached text K/V."""
        for layer in self._counting:
            layer.set_counter(step.counter)
        if self._ahead is not None:
            self._ahead.fill_(float(step.counter != 1))  # after step 0 one value is known, and no line leads through it
        for manager in self._managers:
            if isinstance(manager, CodedManager) and manager.coded is not None:
                manager.coded.nothing_held = step.index == 0
        if self._rolling is not None:
            self._rolling.set_step(step.counter - self._config.warmup_steps - 1)

    def register(self, call: Callable[[], Any]) -> None:
        """Make the exchange buffers: `call` runs the UNet once, in which every layer registers what it will send."""
        if self._config.parallelism != "patch":
            return
        if not self._holds_context:
            layers = self._new_manager()
            self._wrapper.set_comm_manager(layers)
            self._managers = [layers]
        else:
            self._managers = [self._managed(kind, self._new_manager()) for kind in _CONTEXTUAL]
        if self._own_statistics or self._coded is not None:  # statistics stay as they are
            self._managers.append(self._managed(DistriGroupNorm, PatchParallelismCommManager(self._config)))
        self.set_step(FIRST)
        call()
        for manager in self._managers:
            if manager.numel > 0:
                manager.create_buffer()
        if self._ahead is not None:
            self._forecast_context(self._ahead)
        if self._period:
            registered = [layer for layer in self._contextual if layer.idx is not None]
            self._rolling = RollingRenewal(registered, self._managers[0], mode=self._config.mode, period=self._period)

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

    def _forecast_context(self, ahead: torch.Tensor) -> None:
        """K/V and halos; GroupNorm's statistics are corrected by the own change already."""
        for manager in self._managers[: len(self._managers) - self._own_statistics]:
            forecast = ContextForecast(manager, ahead)
            forecast.attach(self.unet)
            if isinstance(manager, ContextManager):
                manager.forecast = forecast

    def _fuse_statistics(self) -> None:
        """Let GroupNorm alone run in mode corrected_async_gn, with one collective for a whole step (comm_queue)."""
        config = copy(self._config)
        config.mode, config.comm_checkpoint = "corrected_async_gn", sys.maxsize
        for module in self.unet.modules():
            if isinstance(module, DistriGroupNorm):
                module.distri_config = config

    def _give_own_configs(self) -> None:
        """Let each layer with context have a config of its own: who gathers it, and whether it sends."""
        for layer in self._contextual:
            layer.distri_config = own_config(layer)
            if self._coded is not None:
                layer.distri_config.batch_group = LayerContext(layer)

    def _new_manager(self) -> PatchParallelismCommManager:
        """A manager of layers' context."""
        if self._coded is not None:
            return CodedManager(self._config, self._coded, holds=self._holds_context)
        return (ContextManager if self._holds_context else PatchParallelismCommManager)(self._config)

    def _managed(self, kind: type[BaseModule], manager: PatchParallelismCommManager) -> PatchParallelismCommManager:
        """The manager, for one kind of layers alone.

        GroupNorm's statistics are fp32, and one manager holds one dtype (utils.py:136); context that is exchanged block
        by block is kept apart by what a block means in it.
        """
        for module in self.unet.modules():
            if isinstance(module, kind):
                module.set_comm_manager(manager)
        return manager
