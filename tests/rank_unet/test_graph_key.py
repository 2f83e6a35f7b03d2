"""Two graphs have one key where nothing that they depend on differs, and only there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UNet2DConditionModel
from torch import nn
from torch._dynamo.convert_frame import fullgraph_capture
from torch._dynamo.utils import get_metrics_context

from otil_exp.choices import GnSync
from otil_exp.rank_unet import graph_key as module
from otil_exp.rank_unet.graph_key import graph_key
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.products import Fp8Products
from otil_exp.rank_unet.sliced.blocks import CarryingBlock, compile_apart, group_blocks
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import silent_copy, slice_layers
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.stages.parts import SegmentCall
from otil_exp.stages.tape import tape
from places import among_fake_peers
from tiny_sdxl import tiny_inputs, tiny_unet

INPUTS = StepInputs(timestep=torch.ones(2), **tiny_inputs(height=64, width=64))


def slices(index: int = 0, count: int = 2, group: str = "0") -> Slices:
    """As among ranks, of which there are none."""
    made = Slices(index=index, count=1, group=None, device=torch.device("cpu"))
    made.count, made._name = count, group
    made.others = torch.zeros(count - 1)
    return made


def sliced(
    unet: UNet2DConditionModel | None = None, of: Slices | None = None, gn_sync: GnSync = GnSync.off
) -> UNet2DConditionModel:
    unet = (unet or tiny_unet()).requires_grad_(False)
    slice_layers(unet, of or slices(), gn_sync)
    group_blocks(unet)
    return unet


def key(unet: nn.Module, inputs: StepInputs = INPUTS) -> str:
    with torch.no_grad():
        return graph_key(predict, unet, inputs)


def test_what_does_not_matter(tmp_path: Path) -> None:
    """Weights, where they come from, and which of the ranks it is."""
    known = key(sliced())
    assert key(sliced(tiny_unet(seed=3))) == known
    assert key(sliced(of=slices(index=1))) == known
    tiny_unet().save_pretrained(tmp_path)
    assert key(sliced(UNet2DConditionModel.from_pretrained(tmp_path).eval())) == known
    with torch.device("meta"):  # as the process that compiles ahead makes it
        bare = UNet2DConditionModel.from_config(dict(tiny_unet().config))
    assert key(sliced(bare.to_empty(device="cpu").eval())) == known


DIFFERENT: dict[str, Callable[[], Any]] = {
    "more slices": lambda: sliced(of=slices(count=3)),
    "another group": lambda: sliced(of=slices(group="7")),
    "gn_sync": lambda: sliced(gn_sync=GnSync.fused),
    "a silent step": lambda: silent_copy(sliced()),
    "half precision": lambda: sliced(tiny_unet(dtype=torch.float16)),
    "channels last": lambda: sliced().to(memory_format=torch.channels_last),
    "more groups": lambda: sliced(tiny_unet(groups=2)),
    "a deeper transformer": lambda: sliced(tiny_unet(depth=2)),
    "training": lambda: sliced().train(),
    "a weight twice": lambda: weight_twice(sliced()),
    "another setting": lambda: with_setting(sliced()),
    "fp8": lambda: with_fp8(sliced()),
    "a hook": lambda: with_hook(sliced()),
}


def weight_twice(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    unet.time_embedding.linear_1.bias = unet.time_embedding.linear_2.bias
    return unet


def with_context(unet: UNet2DConditionModel, *, of_one_tensor: bool) -> UNet2DConditionModel:
    parts = torch.zeros(2, 5) if of_one_tensor else [torch.zeros(5), torch.zeros(5)]
    for name, part in zip(("above", "below"), parts, strict=True):
        unet.register_buffer(name, part[:4], persistent=False)
    return unet


def with_setting(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    unet.register_to_config(center_input_sample=True)
    return unet


def with_fp8(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    Fp8Products(unet)
    return unet


def with_hook(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    unet.conv_in.register_forward_hook(lambda *_: None)
    return unet


@pytest.mark.parametrize("changed", DIFFERENT)
def test_what_a_unet_is_made_of_matters(changed: str) -> None:
    assert key(DIFFERENT[changed]()) != key(sliced())


def test_parts_of_one_tensor_are_no_tensors_of_their_own() -> None:
    """What is written into one may be in the other, too."""
    one, two = (with_context(tiny_unet(), of_one_tensor=of_one_tensor) for of_one_tensor in (True, False))
    assert key(one) != key(two)
    assert key(one) == key(with_context(tiny_unet(), of_one_tensor=True))


def test_shapes_and_strides_of_inputs_matter() -> None:
    unet = tiny_unet()
    wide = StepInputs(timestep=torch.ones(2), **tiny_inputs(height=64, width=128))
    strided = copy.copy(INPUTS)
    object.__setattr__(strided, "sample", INPUTS.sample.to(memory_format=torch.channels_last))
    number = copy.copy(INPUTS)
    object.__setattr__(number, "timestep", torch.ones(()))
    assert len({key(unet, inputs) for inputs in (INPUTS, wide, strided, number)}) == 4


def test_this_process_and_machine_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    unet = tiny_unet()
    keys = [key(unet), graph_key(predict, unet, INPUTS)]  # the second one with gradients
    with monkeypatch.context() as other:
        other.setattr(torch, "__version__", "2.0")
        keys.append(key(unet))
    with monkeypatch.context() as other:
        other.setattr(torch, "get_num_threads", lambda: 99)
        keys.append(key(unet))
    with torch._inductor.config.patch(pattern_matcher=False):
        keys.append(key(unet))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        keys.append(key(unet))
    with monkeypatch.context() as other:
        other.setattr(torch, "get_default_dtype", lambda: torch.float64)
        keys.append(key(unet))
    with monkeypatch.context() as other:
        other.setattr(module, "_sources", lambda: "edited")
        keys.append(key(unet))
    assert len(set(keys)) == len(keys)
    assert key(unet) == keys[0]


def test_the_function_and_what_it_holds_matter() -> None:
    unet = tiny_unet()

    def scaled(factor: float) -> Callable[..., Any]:
        return lambda unet, inputs: factor * predict(unet, inputs)

    functions = [predict, scaled(1.0), scaled(2.0), partial(predict, 1), partial(predict, 2)]
    assert len({graph_key(function, unet, INPUTS) for function in functions}) == len(functions)
    assert graph_key(scaled(2.0), unet, INPUTS) == graph_key(scaled(2.0), unet, INPUTS)
    assert graph_key(predict, unet, INPUTS, depends_on=["a"]) != graph_key(predict, unet, INPUTS, depends_on=["b"])


class Held(nn.Module):
    """A module that has something that Dynamo makes a constant of."""

    counts = True

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


class InSlots:
    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


def by(factor: float) -> Callable[..., Any]:
    def scaled(x: torch.Tensor, *, factor: float = factor) -> torch.Tensor:
        return factor * x

    return scaled


def part(start: int) -> list[torch.Tensor]:
    whole = torch.zeros(8)
    return [whole[:4], whole[start : start + 4]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: [lambda x: 2 * x, None][0], lambda: [None, lambda x: 3 * x][1]),
        (lambda: [lambda x: x.sin(), None][0], lambda: [None, lambda x: x.cos()][1]),
        (lambda: by(2.0), lambda: by(3.0)),
        (lambda: torch.sin, lambda: torch.cos),
        (lambda: InSlots(1), lambda: InSlots(2)),
        (lambda: range(3), lambda: range(4)),
        (lambda: np.float32(1), lambda: np.float32(2)),
        (lambda: part(0), lambda: part(2)),
    ],
    ids=["a constant", "a method", "a default", "a function of C", "a slot", "a range", "a number of numpy", "overlap"],
)
def test_whatever_a_module_holds_matters(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert key(Held(one())) != key(Held(other()))
    assert key(Held(one())) == key(Held(one()))


def test_an_attribute_of_a_class_is_one_of_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set to what its class has, as calibration leaves it, it is no other one."""
    known, same = key(Held(0)), Held(0)
    same.counts = True
    assert key(same) == known
    monkeypatch.setattr(Held, "counts", False)
    assert key(Held(0)) != known


def test_what_has_only_an_address_is_what_its_kind_is() -> None:
    assert key(Held(object())) == key(Held(object()))


def test_blocks_alike_have_one_graph_whatever_they_are_called() -> None:
    unet = sliced(tiny_unet(channels=(16, 32, 32), depth=2))
    compile_apart(unet, "silent")
    blocks = [one for one in unet.modules() if isinstance(one, CarryingBlock)]
    tokens, text = torch.zeros(2, 16, 32), torch.zeros(2, 77, 64)
    keys = {graph_key(CarryingBlock.called, one, tokens, tokens, text) for one in blocks}
    first = {graph_key(CarryingBlock.called, one, tokens, None, text) for one in blocks}
    assert len(blocks) > 4
    assert (len(keys), len(first), len(keys | first)) == (1, 1, 2)


@pytest.mark.slow
def test_the_code_that_graphs_are_made_of_is_part_of_the_key() -> None:
    """All that Dynamo reads of this package, of a synchronous step and of a stage, lies where the key looks for it."""
    units = tape(tiny_unet().config, 8, 8)
    segment = SegmentCall(tiny_unet(), units, fold(units, named_cuts(units, ["down0.down/up0.attn0"]))[1])
    told = [INPUTS.timestep, INPUTS.encoder_hidden_states, *INPUTS.added_cond_kwargs.values()]
    files = code_of(SegmentCall.forward, segment, *told, torch.zeros(2, 16, 4, 4))
    with among_fake_peers() as ranks:
        of = Slices(index=0, count=2, group=None, device=ranks.device)
        unet = with_fp8(sliced(of=of, gn_sync=GnSync.exact))
        predict(unet, INPUTS)
        files |= code_of(predict, unet, INPUTS)
    package = Path(module.__file__).parents[1]
    ours = {str(file.relative_to(package)) for file in files if file.is_relative_to(package)}
    assert {"stages/parts.py", "rank_unet/inputs.py", "rank_unet/products.py", "rank_unet/sliced/blocks.py"} <= ours
    assert [file for file in ours if not file.startswith(module.TRACED)] == []
    assert all((package / name).exists() for name in module.TRACED)


def code_of(function: Callable[..., Any], *arguments: Any) -> set[Path]:
    """Files of all functions that the graph of a function is made of."""
    with get_metrics_context(), torch.no_grad():
        captured = fullgraph_capture(function, arguments, {})
    return {Path(code.co_filename) for code in captured.graph_capture_output.traced_code}
