"""The plain modules that engine=compiled runs, against diffusers and against distrifuser's own layers."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from torch import nn
from torch._dynamo.utils import counters

from otil_exp.choices import Engine, GnSync
from otil_exp.methods.naive_patch.config import NaivePatchConfig, SplitScheme
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.rank_unet import compiled_call
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.sliced import blocks, compile_turn, graph, layers
from otil_exp.rank_unet.sliced.attention import merged
from otil_exp.traffic import TrafficCounter
from places import among_fake_peers, place, place_without_peers
from ranks import run_ranks
from sliced_layers import exchanging_layers
from tiny_sdxl import TEXT_WIDTH, tiny_inputs, tiny_unet
from trajectories import FULL_SYNC, TIMESTEPS, counted, picture, plain, prepared

RANKS = 3
"""One slice has neighbours on both sides."""
INPUTS = {"height": 96, "width": 64}
REFRESH = {"warmup_steps": 0, "refresh_period": 3}
"""Steps 0 and 3 are synchronous, 1, 2 and 4 are not."""
SILENT = {gn_sync: SilentLayersConfig(name="balanced", gn_sync=gn_sync.value) for gn_sync in GnSync}
NAIVE = NaivePatchConfig(name="naive_patch", split_scheme=SplitScheme.row)


@pytest.fixture
def _no_cpp(monkeypatch):
    """Graphs are made, but not turned into C++, which would take minutes."""
    monkeypatch.setattr(compiled_call, "BACKEND", "eager")


class OneTransformer(nn.Module):
    """With the interface of a UNet, and compiled in a moment."""

    def __init__(self):
        super().__init__()
        shape = {"num_attention_heads": 2, "attention_head_dim": 4, "in_channels": 4, "norm_num_groups": 2}
        torch.manual_seed(0)
        self.inner = Transformer2DModel(**shape, cross_attention_dim=2 * TEXT_WIDTH, use_linear_projection=True)
        self.requires_grad_(False)

    def forward(self, sample, timestep, text, added_cond_kwargs, return_dict):
        return self.inner(sample, encoder_hidden_states=text, return_dict=return_dict)


def graphs():
    return counters["stats"]["unique_graphs"]


def worst(ours, theirs):
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.usefixtures("_no_cpp")
def test_the_compiled_reference_is_plain_diffusers_and_one_graph_for_all_steps_pictures_and_prompts():
    with prepared(place_without_peers(), REFERENCE, engine=Engine.compiled) as ready:
        made = graphs()
        assert worst(ready.picture(), plain()) <= 1e-5
        ready.inputs.update(tiny_inputs(seed=8))
        assert worst(ready.picture(), plain(inputs=tiny_inputs(seed=8))) <= 1e-5
        ready.unet.begin(ready.steps)
        with torch.no_grad():
            for t in (981, torch.tensor(500), torch.tensor([20.5, 20.5])):  # what schedulers hand over
                ready.unet(timestep=t, **ready.inputs)
    assert graphs() == made


@pytest.mark.usefixtures("_no_cpp")
def test_a_process_compiles_for_as_many_cells_as_it_performs(monkeypatch):
    """PyTorch keeps a limited number of graphs of one function, and then refuses to make another.

    The smallest limit, and transformers of one block: a second cell would be over it.
    """
    monkeypatch.setattr(blocks, "GRAPHS", 1)
    for _ in range(2):
        with prepared(place_without_peers(), REFERENCE, engine=Engine.compiled):
            pass


@pytest.mark.usefixtures("_no_cpp")
def test_blocks_of_one_shape_share_a_graph_with_weights_of_their_own():
    """But for a transformer's first, which has nothing to add."""
    unet = tiny_unet(depth=3)
    transformers = [module for module in unet.modules() if isinstance(module, Transformer2DModel)]
    assert len(transformers) > 1
    assert {(one.in_channels, len(one.transformer_blocks)) for one in transformers} == {(32, 3)}
    plain_unet = tiny_unet(depth=3)
    made = graphs()
    with prepared(place_without_peers(), REFERENCE, unet=unet, engine=Engine.compiled) as ready:
        found = [module for module in unet.modules() if isinstance(module, blocks.CarryingBlock)]
        assert len(found) == 3 * len(transformers)
        assert graphs() == made + 3
        with torch.no_grad():
            ready.unet.begin(ready.steps)
            before = ready.unet(timestep=1, **ready.inputs).sample
            expected = plain_unet(timestep=1, **ready.inputs).sample
            assert worst([before], [expected]) <= 1e-5
            for name, weight in found[-1].named_parameters():
                if name.endswith("to_out.0.weight"):
                    weight.zero_()
            ready.unet.begin(ready.steps)
            after = ready.unet(timestep=1, **ready.inputs).sample
            with ready.unet.calling_modules():
                ready.unet.begin(ready.steps)
                called = ready.unet(timestep=1, **ready.inputs).sample
        assert (after - before).abs().max() > 1e-3
        assert worst([after], [called]) <= 1e-5
        assert graphs() == made + 3


@pytest.mark.usefixtures("_no_cpp")
def test_two_unets_at_a_time_call_their_own_blocks():
    outputs = []
    inputs = StepInputs(timestep=torch.ones(2), **tiny_inputs(height=64, width=64))
    unets = [OneTransformer() for _ in range(2)]
    with torch.no_grad():
        for unet in unets:
            for weight in unet.parameters():
                weight.mul_(1 + len(outputs) / 8)
            outputs.append(predict(unet, inputs))
            blocks.group_blocks(unet)
        calls = [
            graph.Graph(unet, place_without_peers(), TrafficCounter(), form="alone", communicates=False)
            for unet in unets
        ]
        for call, output in zip(calls, outputs, strict=True):
            torch.testing.assert_close(call(inputs), output, rtol=1e-4, atol=1e-5)
    assert (outputs[0] - outputs[1]).abs().max() > 1e-2
    torch.compiler.reset()


@pytest.mark.usefixtures("_no_cpp")
def test_every_shape_is_compiled_in_a_ranks_turn(monkeypatch):
    turns = []

    @contextmanager
    def noted(ranks, *, communicates):
        turns.append(graphs())
        with compile_turn.compile_turn(ranks, communicates=communicates):
            yield

    monkeypatch.setattr(graph, "compile_turn", noted)
    call = graph.Graph(OneTransformer(), place_without_peers(), TrafficCounter(), form="alone", communicates=False)
    with torch.no_grad():
        for height, width in [(64, 32), (32, 64)] * 2:
            call(StepInputs(timestep=torch.ones(2), **tiny_inputs(height=height, width=width)))
    assert len(turns) == 2
    assert graphs() == turns[-1] + 1
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("backend", "together", "both"),
    [("nccl", True, True), ("nccl", False, False), ("gloo", True, False), ("gloo", False, False)],
)
def test_where_ranks_share_a_gpu_only_the_silent_form_is_compiled(monkeypatch, backend, together, both):
    """Such ranks have gloo, whose collectives no graph of a GPU can hold; a slice that is a picture has one form."""
    settings = {"together": together, "gn_sync": GnSync.off, "last_synchronous": 0}
    with among_fake_peers() as ranks:
        sliced = layers.SlicedLayers(tiny_unet(), ranks, TrafficCounter(), **settings)
        sliced._ranks = replace(ranks, device=torch.device("cuda", 0))  # where there may be none
        monkeypatch.setattr(layers.dist, "get_backend", lambda: backend)
        assert sliced.compiles_both_forms == both


def test_merged_projections_are_those_side_by_side():
    torch.manual_seed(0)
    layers = [nn.Linear(3, width, bias=bias) for width, bias in ((2, False), (4, False))]
    x = torch.randn(5, 3)
    one = merged(layers)
    assert torch.equal(one.weight, torch.cat([layer.weight for layer in layers]))
    torch.testing.assert_close(one(x), torch.cat([layer(x) for layer in layers], dim=-1), rtol=0, atol=1e-6)


def work(rank):
    """Distrifuser's layers and ours, these without a compiler."""
    torch.compile = lambda unet, **_: unet
    ranks = place(rank, split_batch=False)
    settings = {"inputs": tiny_inputs(**INPUTS), **REFRESH}
    engines = (Engine.eager, Engine.compiled)
    result = {}
    sent = {}
    for gn_sync, preset in SILENT.items():
        for engine in engines:
            result[gn_sync, engine], sent[gn_sync, engine] = counted(ranks, preset, engine=engine, **settings)
    result["full_sync"] = picture(ranks, FULL_SYNC, engine=Engine.compiled, **settings)
    result["naive"] = [picture(ranks, NAIVE, engine=engine, **settings) for engine in engines]
    result["fused traffic"] = [sent[GnSync.fused, engine] for engine in engines]
    return result


def compiled_work(rank):
    """GroupNorm exact: collectives in both graphs."""
    compiled_call.BACKEND = "aot_eager"
    ranks = place(rank, split_batch=False)
    exact = SILENT[GnSync.exact]
    pictures_of, traffic_of = {}, {}
    pictures_of["eager"], traffic_of["eager"] = counted(ranks, exact, **REFRESH)
    with prepared(ranks, exact, engine=Engine.compiled, **REFRESH) as ready:
        made = graphs()
        pictures_of["compiled"] = list(ready.picture())
        ready.inputs.update(tiny_inputs(seed=8))
        traffic_of["compiled"] = ready.counted()[1]
        return pictures_of, traffic_of, graphs() - made


@pytest.fixture(scope="module")
def made():
    return run_ranks(RANKS, work, timeout=500)


@pytest.mark.ranks
@pytest.mark.parametrize("gn_sync", GnSync)
def test_silent_and_synchronous_steps_are_those_of_distrifusers_layers(made, gn_sync):
    """Two implementations of each method, float32: up to the order of sums."""
    for rank in made:
        assert worst(rank[gn_sync, Engine.compiled], rank[gn_sync, Engine.eager]) <= 1e-5


@pytest.mark.ranks
def test_fused_statistics_differ_from_exact_ones_where_the_peers_are_a_step_old(made):
    exact, fused = (made[0][gn_sync, Engine.eager] for gn_sync in (GnSync.exact, GnSync.fused))
    equal = [torch.equal(a, b) for a, b in zip(exact, fused, strict=True)]
    assert equal == [True, False, False, True, False]
    own = made[0][GnSync.off, Engine.eager]
    assert worst(fused[1:3], exact[1:3]) < worst(own[1:3], exact[1:3])


@pytest.mark.ranks
def test_full_sync_is_one_process(made):
    assert worst(made[0]["full_sync"], plain(inputs=tiny_inputs(**INPUTS))) <= 1e-5


@pytest.mark.ranks
def test_naive_patch_needs_nothing_of_the_other_slices(made):
    for rank in made:
        assert worst(*rank["naive"]) <= 1e-5


@pytest.mark.ranks
def test_compiled_ranks_make_the_same_picture_send_the_same_bytes_in_fewer_collectives_and_never_compile_again():
    """Over steps, prompts and pictures; the second picture has another latent and another text.
    A synchronous step has a collective a layer, but one for a GroupNorm and the convolution after it.
    """
    for pictures_of, traffic_of, new_graphs in run_ranks(2, compiled_work, timeout=500):
        assert worst(pictures_of["compiled"], pictures_of["eager"]) <= 1e-5
        ours, theirs = traffic_of["compiled"], traffic_of["eager"]
        assert [step.bytes_sent for step in ours] == [step.bytes_sent for step in theirs]
        layers, shared, norms = exchanging_layers(tiny_unet())  # and a step gathers the noise prediction
        assert [step.collectives for step in theirs] == [layers + 1, norms + 1, norms + 1, layers + 1, norms + 1]
        layers -= shared
        assert [step.collectives for step in ours] == [layers + 1, norms + 1, norms + 1, layers + 1, norms + 1]
        assert new_graphs == 0


@pytest.mark.ranks
def test_fused_statistics_take_one_collective_a_silent_step_and_the_bytes_of_distrifusers_layers(made):
    """Beside it, a step has the gather of the noise prediction.

    Worked out: each rank hands both peers mean and variance, float32, of every group of every GroupNorm (2 pictures in
    the batch), and its rows of the prediction.
    """
    called, compiled = made[0]["fused traffic"]
    assert len(compiled) == len(TIMESTEPS)
    assert [compiled[step].collectives for step in (1, 2, 4)] == [2, 2, 2]
    statistics = sum(2 * 2 * norm.num_groups * 4 for norm in tiny_unet().modules() if isinstance(norm, nn.GroupNorm))
    prediction = 2 * 4 * (INPUTS["height"] // 8 // RANKS) * (INPUTS["width"] // 8) * 4
    assert [compiled[step].bytes_sent for step in (1, 2, 4)] == [(RANKS - 1) * (statistics + prediction)] * 3
    assert [called[step].bytes_sent for step in (1, 2, 4)] == [compiled[step].bytes_sent for step in (1, 2, 4)]
    # Without torch.compile a graph's collectives are counted twice, as recorded and as called; the gather once.
    gather = (RANKS - 1) * prediction
    assert [2 * (called[step].bytes_sent - gather) + gather for step in (0, 3)] == [
        compiled[step].bytes_sent for step in (0, 3)
    ]
