"""Each patch: the fault without it, none with it, nothing left of it afterwards."""

import pytest
import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.resnet import ResnetBlock2D
from torch import distributed as dist

from otil_exp.upstream.distri_config import RankConfig
from otil_exp.upstream.imports import (
    DistriGroupNorm,
    DistriResnetBlock2DTP,
    PatchParallelismCommManager,
    imported,
    pp_attn,
    pp_conv2d,
    tp_modules,
)
from otil_exp.upstream.patches import PATCHES, applied, conv_shortcut, gn_sync, peft_flag
from otil_exp.upstream.patches.replace import replaced
from places import place_without_peers

with imported():
    from distrifuser.modules.pp.attn import DistriSelfAttentionPP


def config(**settings):
    return RankConfig(
        place_without_peers(),
        **{"parallelism": "patch", "mode": "no_sync", "warmup_steps": 1, "height": 64, "width": 64, "guidance": True}
        | settings,
    )


def state():
    owners = (pp_attn, pp_conv2d, DistriResnetBlock2DTP, PatchParallelismCommManager, DistriGroupNorm, *tp_modules)
    return [dict(vars(owner)) for owner in owners]


@pytest.mark.parametrize("name", PATCHES)
def test_undoing_a_patch_leaves_distrifuser_as_it_was(name):
    before = state()
    with applied(name):
        assert state() != before or name == "peft_flag"
    assert state() == before


def test_patches_are_undone_after_an_error():
    before = state()
    with pytest.raises(ZeroDivisionError), applied(*PATCHES):
        raise ZeroDivisionError
    assert state() == before


def test_an_unknown_patch_is_named():
    with pytest.raises(ValueError, match="no patch is called typo"), applied("typo"):
        pass


def test_peft_flag_lets_attention_call_plain_linear_layers(monkeypatch):
    monkeypatch.setattr(pp_attn, "USE_PEFT_BACKEND", False)  # as without peft
    torch.manual_seed(0)
    attention = Attention(query_dim=16, heads=2, dim_head=8)
    x = torch.randn(1, 5, 16)
    expected = attention(x)
    layer = DistriSelfAttentionPP(attention, config())
    with pytest.raises(TypeError, match="positional arguments"):
        layer(x)
    with peft_flag():
        torch.testing.assert_close(layer(x), expected)


def test_conv_shortcut_is_found_in_the_wrapped_block(monkeypatch):
    monkeypatch.setattr(dist, "all_reduce", lambda *args, **kwargs: None)  # the sum over one rank
    torch.manual_seed(0)
    block = ResnetBlock2D(in_channels=8, out_channels=16, temb_channels=4, groups=4).eval()
    x, temb = torch.randn(1, 8, 6, 6), torch.randn(1, 4)
    with torch.no_grad():
        expected = block(x, temb)
        layer = DistriResnetBlock2DTP(block, config(parallelism="tensor"))
        with pytest.raises(AttributeError, match="conv_shortcut"):
            layer(x, temb)
        with conv_shortcut():
            torch.testing.assert_close(layer(x, temb), expected)


class LazySend:
    """An asynchronous all_gather at its slowest: it reads what it sends only when it is waited for."""

    def __init__(self, sent, tensor):
        self.sent, self.tensor = sent, tensor

    def wait(self):
        self.sent.append(self.tensor.tolist())


def run_step(manager, values):
    """What layers do in a step: wait for what was sent for them, read it, queue what they send."""
    for index, value in enumerate(values):
        if manager.handles[index] is not None:
            manager.handles[index].wait()
            manager.handles = [None] * len(manager.handles)  # one send stands behind them all
        manager.enqueue(index, torch.tensor([value]))


@pytest.fixture
def manager(monkeypatch):
    """A manager of three tensors, and what its rank has sent: a list for each collective."""
    sent = []
    monkeypatch.setattr(dist, "all_gather", lambda into, tensor, group, async_op: LazySend(sent, tensor))
    manager = PatchParallelismCommManager(config())
    for _ in range(3):
        manager.register_tensor([1], torch.float32)
    manager.create_buffer()
    return manager, sent


@pytest.mark.parametrize(("patched", "received"), [(False, [9.0, 2.0, 3.0]), (True, [1.0, 2.0, 3.0])])
def test_comm_queue_sends_a_step_before_the_next_one_overwrites_it(manager, patched, received):
    manager, sent = manager
    with applied(*["comm_queue"] * patched):
        run_step(manager, [1.0, 2.0, 3.0])
        run_step(manager, [9.0, 8.0, 7.0])
    assert sent == [received]


@pytest.mark.parametrize("patched", [False, True])
def test_comm_queue_leaves_a_queue_that_is_sent_in_parts(manager, patched):
    manager, sent = manager
    manager.distri_config.comm_checkpoint = 2
    with applied(*["comm_queue"] * patched):
        run_step(manager, [1.0, 2.0, 3.0])
        assert manager.idx_queue == [2]
        run_step(manager, [9.0, 8.0, 7.0])
    assert sent == [[1.0, 2.0], [3.0]]


@pytest.fixture
def norm_layer(monkeypatch):
    """A GroupNorm layer of two slices after warm-up, whose peer's slice is the same as its own."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, **kwargs: tensor.mul_(2))

    def make(mode, counter):
        settings = config(mode=mode)
        settings.n_device_per_batch = 2
        torch.manual_seed(0)
        norm = torch.nn.GroupNorm(2, 4)
        torch.nn.init.normal_(norm.weight)
        layer = DistriGroupNorm(norm, settings)
        layer.set_counter(counter)
        return layer

    return make


X = torch.linspace(-3, 5, 64).reshape(1, 4, 4, 4) ** 3


def test_gn_sync_takes_the_synchronised_branch_after_warm_up(norm_layer):
    synchronised = norm_layer("no_sync", counter=0)(X)
    silent = norm_layer("no_sync", counter=5)
    assert torch.equal(silent(X), silent.module(X))
    with gn_sync():
        layer = norm_layer("no_sync", counter=5)
        assert torch.equal(layer(X), synchronised)
        assert layer.counter == 6
    assert not torch.equal(silent.module(X), synchronised)


@pytest.mark.parametrize("mode", ["separate_gn", "sync_gn", "full_sync"])
@pytest.mark.parametrize("counter", [0, 5])
def test_gn_sync_leaves_other_modes_bit_for_bit(norm_layer, mode, counter):
    without = norm_layer(mode, counter)(X)
    with gn_sync():
        assert torch.equal(norm_layer(mode, counter)(X), without)


class Owner:
    """In the place of a class of distrifuser."""

    there = "at first"


@pytest.mark.parametrize("name", ["there", "absent"])
@pytest.mark.parametrize("first_to_end", [0, 1])
def test_blocks_that_end_in_either_order_leave_what_was_there_at_first(name, first_to_end):
    before = dict(vars(Owner))
    blocks = [replaced(Owner, name, value) for value in ("outer", "inner")]
    for block in blocks:
        block.__enter__()
    assert getattr(Owner, name) == "inner"
    blocks.pop(first_to_end).__exit__(None, None, None)
    assert getattr(Owner, name) == ("inner" if first_to_end == 0 else "outer")
    blocks.pop().__exit__(None, None, None)
    assert dict(vars(Owner)) == before


def test_methods_that_close_in_the_order_they_were_built_leave_distrifuser_as_it_was():
    before = state()
    first, second = applied("comm_queue", "exact_groupnorm"), applied("comm_queue", "exact_groupnorm", "gn_sync")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert state() != before
    second.__exit__(None, None, None)
    assert state() == before
