"""Products of 8-bit floats: scales and cuts by hand, their error against float64."""

from __future__ import annotations

import weakref

import pytest
import torch
from diffusers.models.attention import BasicTransformerBlock
from torch import nn

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.choices import GnSync
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet import products
from otil_exp.rank_unet.products import Fp8Linear, Fp8Products, quantised, scaled_product
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import silent_copy, slice_layers
from otil_exp.topology import single_rank
from tiny_sdxl import tiny_unet

K, N = 32, 16
CPU = torch.device("cpu")


class Block(nn.Module):
    """Holds one layer where a UNet has it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.transformer_blocks = nn.ModuleList([nn.ModuleDict({"attn2": nn.ModuleDict({"to_q": linear})})])


def layer_of(weight: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[Fp8Products, Fp8Linear]:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight.data = weight
    if bias is not None:
        linear.bias.data = bias
    products = Fp8Products(Block(linear.requires_grad_(False)))
    (layer,) = products.layers.values()
    return products, layer


def test_scales_are_the_largest_magnitudes_with_a_margin_on_the_inputs() -> None:
    weight = torch.zeros(N, K)
    weight[2, 3] = -3.5
    products, layer = layer_of(weight)
    assert layer.weight_scale.item() == 3.5 / 448
    place = layer.scale.data_ptr()
    with products.calibrating(ranks=1):
        layer(torch.full((2, 3, K), 2.0))
        layer(torch.full((2, 3, K), -7.0))
        layer(torch.full((2, 3, K), 5.0))
    assert layer.scale.item() == 2 * 7.0 / 448
    assert layer.scale.data_ptr() == place  # what a graph reads
    with products.calibrating(ranks=1):
        layer(torch.zeros(1, K))
    assert layer.scale.item() == 1


def test_what_is_larger_is_cut_and_counted() -> None:
    """Identity: of e4m3 values an output is the input; the margin's end is 14, which e4m3 holds at any scale 2^n."""
    weight = torch.zeros(N, K)
    weight.fill_diagonal_(448.0)
    bias = torch.arange(N, dtype=torch.float32)
    products, layer = layer_of(weight, bias)
    with products.calibrating(ranks=1):
        layer(torch.full((1, K), 7.0))
    x = torch.zeros(2, 2, K)
    x[0, 0, :4] = torch.tensor([14.0, 15.0, -100.0, 6.5])
    x[1, 1, 7] = 14.01
    expected = torch.zeros(2, 2, N)
    expected[0, 0, :4] = torch.tensor([14.0, 14.0, -14.0, 6.5])
    expected[1, 1, 7] = 14.0
    assert torch.equal(layer(x), 448 * expected + bias)
    assert products.overflow() == {"transformer_blocks.0.attn2.to_q": 3}
    layer(x)
    assert products.overflow() == {"transformer_blocks.0.attn2.to_q": 6}
    with products.calibrating(ranks=1):
        layer(x)
    assert products.overflow() == {}
    assert layer(torch.full((2, 2, K), float("nan"))).isnan().all()


@pytest.mark.parametrize(("together", "expected"), [(None, [[3], [1]]), (8, [[1, 0, 0, 2], [0, 1, 0, 0]])])
def test_neighbours_share_a_counter(together: int | None, expected: list[list[int]]) -> None:
    layer = Fp8Linear(nn.Linear(K, N).requires_grad_(False), together)
    x = torch.zeros(2, K)
    x[0, [7, 24, 31]] = 449.0
    x[1, 8] = -449.0
    layer(x)  # with a scale of 1
    assert layer.overflow is not None
    assert layer.overflow.tolist() == expected


def test_an_input_that_is_not_finite_is_refused() -> None:
    products, layer = layer_of(torch.ones(N, K))
    with pytest.raises(RuntimeError, match="the input of transformer_blocks"), products.calibrating(ranks=1):
        layer(torch.full((1, K), float("nan")))
    assert not products.calibrated


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_error_of_a_product_is_bounded(dtype: torch.dtype) -> None:
    """e4m3 rounds to 4 significant bits: by 2^-4 of a value at most, below 2^-6 (times scale) by 2^-10 times scale."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 64, generator=generator) * torch.logspace(-3, 0, 48)[:, None]
    x = (torch.randn(3, 5, 64, generator=generator) * torch.logspace(-4, 1, 64)).to(dtype)
    products, layer = layer_of(weight.to(dtype))
    with products.calibrating(ranks=1):
        layer(x)
    exact_x, exact_weight = x.double(), weight.to(dtype).double()
    exact = exact_x @ exact_weight.T
    off_x = exact_x.abs() / 16 + layer.scale.double() * 2**-10
    off_weight = exact_weight.abs() / 16 + layer.weight_scale.double() * 2**-10
    bound = off_x @ exact_weight.abs().T + exact_x.abs() @ off_weight.T + off_x @ off_weight.T
    rounding = torch.finfo(dtype).eps * exact.abs() + 1e-5 * exact_x.abs() @ exact_weight.abs().T
    found = layer(x)
    assert found.dtype == dtype
    error = (found.double() - exact).abs()
    assert (error <= bound + rounding).all()
    assert error.max() > 0
    assert not products.overflow()


def test_the_stand_in_of_a_cpu_is_the_operation_of_a_gpu() -> None:
    generator = torch.Generator().manual_seed(1)
    scales = torch.tensor(0.37), torch.tensor(0.011)
    rows, weight = (quantised(torch.randn(16, 16, generator=generator), scale) for scale in scales)
    ours = scaled_product(rows, weight, *scales, None, torch.float32)
    theirs = torch._scaled_mm(rows, weight.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=torch.float32)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_layers_that_were_measured_are_chosen() -> None:
    """A transformer block has six, and four where query, key and value are one product: none of attention's outputs."""
    unet = tiny_unet()
    blocks = sum(isinstance(module, BasicTransformerBlock) for module in unet.modules())
    assert blocks
    assert len(Fp8Products(unet).layers) == 6 * blocks
    sliced = tiny_unet()
    slice_layers(sliced, Slices(index=0, count=1, group=None, device=CPU), GnSync.off)
    assert len(Fp8Products(sliced).layers) == 4 * blocks
    assert not isinstance(sliced.time_embedding.linear_1, Fp8Linear)
    narrow = tiny_unet(channels=(8, 24, 24))  # 24 is no multiple of 16; their feed-forward layers have 96 and 192
    assert not Fp8Products(narrow).layers


def test_a_layer_is_gone_before_the_next_one_is_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all weights of half precision would stay beside those of 8 bits until the last."""
    unet = tiny_unet()
    linears = {id(module.weight): weakref.ref(module) for module in unet.modules() if isinstance(module, nn.Linear)}
    alive, chosen = list[int](), list[int]()

    def counted(linear: nn.Linear, counted_together: int | None) -> Fp8Linear:
        alive.append(sum(linears[one]() is not None for one in chosen))
        chosen.append(id(linear.weight))
        return Fp8Linear(linear, counted_together)

    monkeypatch.setattr(products, "Fp8Linear", counted)
    Fp8Products(unet)
    assert len(alive) > 8
    assert set(alive) == {0}


def test_a_graph_holds_the_product_and_its_count_and_a_silent_copy_shares_them() -> None:
    products, layer = layer_of(torch.eye(N, K))
    x = torch.linspace(-9, 9, 4 * K).view(4, K)
    with products.calibrating(ranks=1):
        layer(x / 4)
    called, counted = layer(x), products.overflow()
    assert sum(counted.values()) > 0
    twin = silent_copy(layer)
    compiled = torch.compile(twin, fullgraph=True, dynamic=False, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), called)
    assert products.overflow() == {name: 2 * count for name, count in counted.items()}
    with products.calibrating(ranks=1):  # the graph reads the new scale, and is not made again
        layer(x)
    with torch._dynamo.config.patch(error_on_recompile=True), torch.no_grad():
        assert torch.equal(compiled(x), layer(x))
    assert products.overflow() == {}


def test_a_picture_depends_on_what_was_calibrated_on_and_not_on_the_pictures_between(typed: Typed) -> None:
    config = effective(
        typed(
            "preset=reference",
            "engine.products=fp8",
            "num_inference_steps=6",
            "height=64",
            "width=64",
        )
    )
    first, second = "a red circle", "a blue square"
    with build_pipeline(config, single_rank(CPU)) as pipeline:
        assert pipeline.products() is None
        pipeline(first, 0, decode=False)
        through = pipeline(second, 1, decode=False)
        facts = pipeline.products()
        assert facts is not None
        assert facts["calibrated_on"] == {"prompt": first, "seed": 0, "steps": 5}
        assert len(through.steps) == 6
        assert pipeline.runs_as == "eager, products in fp8"
    with build_pipeline(config, single_rank(CPU)) as pipeline:
        pipeline.calibrate(first, 0)
        resumed = pipeline(second, 1, decode=False)
    assert torch.equal(resumed.latents, through.latents)
    with build_pipeline(config, single_rank(CPU)) as pipeline:
        assert not torch.equal(pipeline(second, 1, decode=False).latents, through.latents)
