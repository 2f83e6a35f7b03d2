"""Text encoders replayed from graphs give what they give when they are called; a stand-in plays the CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import CLIPTextConfig, masking_utils
from transformers.models.clip.modeling_clip import CLIPEncoderLayer

import tiny_sd
import tiny_sdxl
from emulated_graph import emulated_graphs
from otil_exp import pipeline as pipeline_module
from otil_exp.choices import Engine
from otil_exp.cuda_graphs import Captured, CudaGraphRecorder
from otil_exp.methods.rooms import step_of
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.models.families import FAMILIES, Pipeline, family_of
from otil_exp.pipeline import RankPipeline
from otil_exp.text_encoder_graphs import replay_text_encoders
from otil_exp.topology import single_rank
from otil_exp.traffic import TrafficCounter
from places import place_without_peers
from tiny_sdxl import tiny_inputs
from trajectories import cell

PROMPTS = ("a cat", "two dogs that look at a cat on the roof of a house", "")
"""Of different lengths: the pooled text is taken where the prompt ends."""


class Recorder:
    """Counts what it records."""

    def __init__(self) -> None:
        self.recorded = 0
        self._record = emulated_graphs(TrafficCounter())

    def __call__(self, call: Callable[[], Any], /) -> Captured[Any]:
        self.recorded += 1
        found: Captured[Any] = self._record(call)
        return found


@pytest.fixture(params=["sdxl", "sd15"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    if request.param == "sdxl":
        return tiny_sdxl.tiny_pipeline(tiny_sdxl.tiny_unet(), tmp_path)
    return tiny_sd.tiny_pipeline(request.param)


def embeds(pipeline: Pipeline, prompt: str) -> list[torch.Tensor]:
    """All that diffusers' pipeline takes from its text encoders, of the prompt and of the empty one."""
    with torch.no_grad():
        found = pipeline.encode_prompt(prompt, device=pipeline.device, **arguments(pipeline))
    return [tensor for tensor in found if tensor is not None]


def arguments(pipeline: Pipeline) -> dict[str, Any]:
    return {"num_images_per_prompt": 1, "do_classifier_free_guidance": True, "negative_prompt": "blurred"}


def test_each_encoder_is_recorded_once_and_gives_every_prompt_what_a_call_does(pipeline: Pipeline) -> None:
    expected = {prompt: embeds(pipeline, prompt) for prompt in PROMPTS}
    encoders = family_of(pipeline).text_encoders
    called = [getattr(pipeline, part) for part in encoders]
    recorder = Recorder()
    with replay_text_encoders(pipeline, recorder):
        family_of(pipeline).conditions(pipeline, 64, 64, pipeline.device)  # as a pipeline is made ready
        assert recorder.recorded == len(encoders)
        found = {prompt: embeds(pipeline, prompt) for prompt in PROMPTS}
        assert recorder.recorded == len(encoders)
    for prompt in PROMPTS:  # only now: no later prompt has overwritten those of an earlier one
        assert all(torch.equal(*pair) for pair in zip(found[prompt], expected[prompt], strict=True))
    assert [getattr(pipeline, part) for part in encoders] == called


def test_a_call_of_another_kind_gets_a_graph_of_its_own(pipeline: Pipeline) -> None:
    several = torch.full((1, 77), 5), torch.full((2, 77), 7), torch.full((1, 77), 9)
    expected = [pipeline.text_encoder(tokens, output_hidden_states=True) for tokens in several]
    recorder = Recorder()
    with replay_text_encoders(pipeline, recorder):
        found = [pipeline.text_encoder(tokens, output_hidden_states=True) for tokens in several]
        assert recorder.recorded == 2
        assert pipeline.text_encoder(several[0]).hidden_states is None
    for ours, theirs in zip(found, expected, strict=True):
        assert type(ours) is type(theirs)
        assert all(torch.equal(*pair) for pair in zip(tree_leaves(ours), tree_leaves(theirs), strict=True))


def test_a_mask_is_looked_at_in_every_call(pipeline: Pipeline) -> None:
    tokens, mask = torch.full((1, 77), 5), torch.arange(77)[None] < 40
    expected = pipeline.text_encoder(tokens, attention_mask=mask)[0]
    recorder = Recorder()
    with replay_text_encoders(pipeline, recorder):
        pipeline.text_encoder(tokens, attention_mask=torch.ones_like(mask))
        assert torch.equal(pipeline.text_encoder(tokens, attention_mask=mask)[0], expected)
    assert recorder.recorded == 0


def test_no_mask_is_made_where_a_call_makes_none(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers 5.17 makes one where it asks whether a stream is captured, and is told so."""
    monkeypatch.setattr(masking_utils, "is_tracing", captured := lambda *_: True)
    monkeypatch.setattr(masking_utils, "_ignore_causal_mask_sdpa", lambda *_, **__: not masking_utils.is_tracing())
    masks: list[torch.Tensor | None] = []
    for module in pipeline.text_encoder.modules():
        if isinstance(module, CLIPEncoderLayer):
            module.register_forward_pre_hook(lambda _, arguments: masks.append(arguments[1]))
    tokens = torch.full((1, 77), 5)
    pipeline.text_encoder(tokens)
    assert {type(mask) for mask in masks} == {torch.Tensor}  # as feared
    masks.clear()
    with replay_text_encoders(pipeline, Recorder()):
        pipeline.text_encoder(tokens)
    assert len(masks) == 4  # two layers, called and recorded
    assert masks == [None] * 4
    assert masking_utils.is_tracing is captured


@pytest.mark.parametrize("engine", ["graphs", "called"])
def test_a_pipeline_whose_steps_are_replayed_replays_its_text_encoders(
    pipeline: Pipeline, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps themselves are called here; that they are replayed is only said."""
    alone, inputs, recorder = place_without_peers(), tiny_inputs(height=64, width=64), Recorder()
    config = cell(REFERENCE, alone, inputs, steps=2)
    called = pipeline.text_encoder

    class Room:
        @staticmethod
        def build(*arguments: Any) -> Any:
            method = step_of(config).build(*arguments)
            method.captured = engine == "graphs"
            return method

    monkeypatch.setattr(pipeline_module, "step_of", lambda config: Room)
    monkeypatch.setattr(pipeline_module, "CudaGraphRecorder", lambda: recorder)
    with RankPipeline(config, alone, pipeline) as ours:
        ready = recorder.recorded
        latents = [ours(prompt, 3, decode=False).latents for prompt in PROMPTS]
    assert ready == recorder.recorded == (len(family_of(pipeline).text_encoders) if engine == "graphs" else 0)
    assert ours.runs_as == ("eager, text encoders replayed" if engine == "graphs" else "eager")
    assert pipeline.text_encoder is called
    pipeline.unet = ours.unet.unet
    for prompt, ours_ in zip(PROMPTS, latents, strict=True):
        plain = pipeline(
            prompt,
            height=64,
            width=64,
            num_inference_steps=2,
            guidance_scale=config.guidance_scale,
            generator=torch.Generator().manual_seed(3),
            output_type="latent",
        ).images
        assert torch.equal(ours_, plain)


class OnHost(TorchDispatchMode):
    """Notes operations that have a tensor on the CPU: a copy from there is nothing that a graph could repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.found += [str(function)] * any(tensor.device.type == "cpu" for tensor in tensors)
        self.operations += 1
        return result


@pytest.mark.parametrize("encoder", [kind for one in FAMILIES.values() for kind in one.text_encoders.values()])
def test_an_encoder_on_a_gpu_never_turns_to_the_host(encoder: type[Any]) -> None:
    """On tensors without values, which say that they are on a GPU: reading a value would be an error."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPTextConfig(**sizes, vocab_size=514, projection_dim=32, bos_token_id=512, eos_token_id=513)
    with FakeTensorMode(), torch.device("cuda"), torch.no_grad():
        model, tokens = encoder(config).eval(), torch.zeros(1, 77, dtype=torch.int64)
        with OnHost() as host:
            output = model(tokens, output_hidden_states=True)
    assert output.hidden_states[-1].device.type == "cuda"
    assert host.operations > 50
    assert not host.found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_real_graphs_of_a_pipeline_on_a_gpu(pipeline: Pipeline) -> None:
    pipeline.to("cuda")
    expected = {prompt: embeds(pipeline, prompt) for prompt in PROMPTS}
    with replay_text_encoders(pipeline, CudaGraphRecorder()):
        found = {prompt: embeds(pipeline, prompt) for prompt in (*PROMPTS, *PROMPTS)}
    for prompt in PROMPTS:
        for ours, theirs in zip(found[prompt], expected[prompt], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_picture_with_all_in_graphs_is_that_of_calls(pipeline: Pipeline) -> None:
    ranks, inputs = single_rank(torch.device("cuda", 0)), tiny_inputs(height=64, width=64)
    latents = {}
    for engine in (Engine.eager, Engine.cuda_graph):
        with RankPipeline(cell(REFERENCE, ranks, inputs, steps=2, engine=engine), ranks, pipeline.to("cuda")) as ours:
            latents[engine] = [ours(prompt, 3, decode=False).latents for prompt in PROMPTS]
            pipeline.unet = ours.unet.unet
    assert ours.runs_as == "cuda_graph, text encoders replayed"
    for replayed, called in zip(latents[Engine.cuda_graph], latents[Engine.eager], strict=True):
        torch.testing.assert_close(replayed, called, rtol=0, atol=1e-4)
