"""The UNet of rank 0 of a case, its peers played by torch's fake process group, ready to run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch._inductor.config
from diffusers import UNet2DConditionModel

from benchmarks.one_gpu_speed.cases import Case
from otil_exp.cells.normal_form import effective
from otil_exp.choices import Engine, Scheduler
from otil_exp.compile_ahead import compiling
from otil_exp.config import EngineConfig, ExperimentConfig, MethodConfig, ModelConfig, TopologyConfig
from otil_exp.fake_peers import among_fake_peers
from otil_exp.methods.exchanging_layers.config import ExchangingLayersConfig, SyncMode
from otil_exp.methods.rooms import step_of
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.models.architecture import SDXL
from otil_exp.models.loading import Models
from otil_exp.rank_unet import kernel_choice
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.kinds import StepKinds, steady
from otil_exp.rank_unet.products import COUNTED_TOGETHER, Fp8Linear, Fp8Products
from otil_exp.rank_unet.sliced import layers
from otil_exp.rank_unet.unet import RankUNet
from otil_exp.schedule import schedule
from otil_exp.topology import Topology
from otil_exp.traffic import TrafficCounter

WARMUP_STEPS = 15
"""More synchronous steps than are timed."""


def prepared_unet(case: Case, device: torch.device, *, stored: bool = False) -> tuple[Any, dict[str, Any]]:
    """The UNet with seeded weights, its graphs made, and inputs of a step. stored: graphs are found and kept."""
    _set_variant(case.variant)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    plain = random_unet(dtype, device)
    config = effective(
        ExperimentConfig(
            preset=_preset(case),
            topology=TopologyConfig(world_size=case.world_size, split_batch=case.split_batch),
            warmup_steps=WARMUP_STEPS,
            height=case.size,
            width=case.size,
            engine=EngineConfig(name=Engine[case.engine]),
        )
    )
    ranks = among_fake_peers(Topology(world_size=case.world_size, split_batch=case.split_batch), device)
    method = step_of(config).build(config, ranks, plain, TrafficCounter())
    products = Fp8Products(method.unet) if case.variant.startswith("fp8") else None
    if case.engine == "compiled" and not case.both and len(method._kinds.examples) == 2:  # the silent step alone
        method._kinds = StepKinds((steady(WARMUP_STEPS + 1),), lambda step: 0)
    inputs = step_inputs(plain.config, case.size, dtype, device)
    unet = RankUNet(method, tuple(inputs["sample"].shape))
    with compiling(config, ranks, method, StepInputs(**inputs)) if stored else nullcontext():
        unet.prepare(**inputs)
    if products is not None:
        _calibrate(unet, products, inputs)
    return unet, inputs


@torch.no_grad()
def _calibrate(unet: RankUNet, products: Fp8Products, inputs: dict[str, Any]) -> None:
    """Take the scales from two synchronous steps; the peers are not there to be asked for theirs."""
    with products.calibrating(ranks=1), unet.calling_modules():
        unet.begin(schedule(2, WARMUP_STEPS))
        for _ in range(2):
            unet(**inputs)
        unet.finish()


def _preset(case: Case) -> MethodConfig:
    """The method of a case; no_sync is silent layers whose noise prediction is gathered."""
    if case.method == "reference":
        return REFERENCE
    if case.method == "distrifusion":
        return ExchangingLayersConfig(name=case.method, sync_mode=SyncMode.corrected_async_gn)
    return SilentLayersConfig(name=case.method, gn_sync=case.gn_sync)


def random_unet(dtype: torch.dtype, device: torch.device) -> UNet2DConditionModel:
    """SDXL's UNet with seeded random weights; on a CPU that of the shapes model."""
    if device.type == "cpu":
        return (
            Models()
            .load(ModelConfig(name="shapes", architecture="shapes", source="package"), Scheduler.ddim, device)
            .unet
        )
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with device:
        unet = UNet2DConditionModel(**SDXL.unet).eval()
    torch.set_default_dtype(torch.float32)
    return unet


def step_inputs(config: Any, size: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Seeded inputs of a step with guidance, of a picture of size x size pixels."""
    torch.manual_seed(1)
    text, pooled = config.cross_attention_dim, config.projection_class_embeddings_input_dim
    pooled -= 6 * config.addition_time_embed_dim
    return {
        "sample": torch.randn(1, 4, size // 8, size // 8).repeat(2, 1, 1, 1).to(device, dtype),
        "timestep": torch.tensor(500.0, device=device),
        "encoder_hidden_states": torch.randn(2, 77, text).to(device, dtype),
        "added_cond_kwargs": {
            "text_embeds": torch.randn(2, pooled).to(device, dtype),
            "time_ids": torch.tensor([[size, size, 0, 0, size, size]] * 2).to(device, dtype),
        },
    }


def _set_variant(variant: str) -> None:
    """Compile otherwise than runs do, in this process."""
    if variant == "flash":
        kernel_choice.ATTENTION = kernel_choice.ATTENTION[1:]
    if variant == "autotune":
        torch._inductor.config.max_autotune_gemm = True
        torch._inductor.config.max_autotune_conv_backends = "ATEN"
    if variant == "fp8-uncounted":
        Fp8Linear.counts = False
    if variant == "fp8-outputs":
        COUNTED_TOGETHER.update({"attn1.to_out.0": None, "attn2.to_out.0": None})
    if variant == "one-graph":
        layers.group_blocks = lambda unet: None
