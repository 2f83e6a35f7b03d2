"""Channels must divide over the ranks; a late sum needs someone to add up with."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from otil_exp.choices import Products, TensorLayers
from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.methods.forecast_rules import check_order
from otil_exp.methods.method import Method
from otil_exp.methods.tensor.config import TensorConfig
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.models.architecture import architecture_of


class Tensor(Method[TensorConfig]):
    """tensor, tensor_stale."""

    shares_weights = False

    def comes_to(self, preset: TensorConfig, config: ExperimentConfig) -> MethodConfig:
        return REFERENCE if config.topology.world_size == 1 else preset

    def check(self, preset: TensorConfig, config: ExperimentConfig) -> None:
        check_order(preset.order)
        shards, architecture = self.topology(preset, config).slices, architecture_of(config.model)
        if shards > 1 and config.engine.products is Products.fp8:
            raise ValueError(
                f"engine.products=fp8 with preset={preset.name}: distrifuser's feed-forward layers multiply by the "
                "weight of another, which would be one of 8-bit floats then; use engine.products=model_dtype"
            )
        counts = [(count, "channels") for count in architecture.channels]
        counts.append((architecture.norm_groups, "GroupNorm groups"))
        for count, what in counts:
            if count % shards:
                most = gcd(*(one for one, _ in counts))
                *others, last = (str(ranks) for ranks in range(1, most + 1) if most % ranks == 0)
                use = f"{', '.join(others)} or {last} ranks" if others else "1 rank"
                raise ValueError(
                    f"preset={preset.name} over {shards} ranks a batch half: the {count} {what} of "
                    f"model={config.model.name} do not divide; use a topology of {use} a half"
                )

    def normal_form(self, preset: TensorConfig, config: ExperimentConfig) -> TensorConfig:
        """Layers in one order; none, or nobody to add up with, is tensor parallelism that waits."""
        layers = [layers for layers in TensorLayers if layers in preset.stale_layers]
        if preset.stale is None or not layers or self.topology(preset, config).slices == 1:
            return replace(preset, stale=None, stale_layers=[], order=0)
        return replace(preset, stale_layers=layers)

    def uses(self, preset: TensorConfig, config: ExperimentConfig) -> frozenset[str]:
        late = preset.stale is not None and self.topology(preset, config).slices > 1
        return frozenset({"warmup_steps"}) if late else frozenset()

    def exchanges_in_layers(self, preset: TensorConfig, config: ExperimentConfig) -> bool:
        return self.topology(preset, config).slices > 1

    def obstacle(self, preset: TensorConfig, config: ExperimentConfig) -> str | None:
        return "tensor parallelism exchanges inside every layer of distrifuser, which cannot be compiled whole"


METHOD = Tensor()
