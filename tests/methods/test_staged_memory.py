"""A rank of a UNet cut by depth has no more of it on its device, at any moment, than its own stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from composing import Typed
from otil_exp import pipeline as pipelines
from otil_exp.cells.normal_form import effective
from otil_exp.choices import Scheduler
from otil_exp.config import ExperimentConfig, ModelConfig
from otil_exp.methods import staged_step
from otil_exp.methods.geometry import topology_of
from otil_exp.methods.rooms import step_of
from otil_exp.models import loading
from otil_exp.models.loading import Models
from otil_exp.run.execution import _takes_whole_unet
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter

FAKE = torch.device("meta")
"""Stands for a GPU: what is moved there is counted, and holds no values."""


TWO = "topology=2gpu_nosplit"


class Allocated(TorchDispatchMode):
    """Bytes of all new tensors on the fake device, whether they are kept or not, while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.on = 0, True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        given = {id(one) for one in tree_leaves((args, kwargs))}
        new = [one for one in tree_leaves(results) if isinstance(one, Tensor) and one.is_meta and id(one) not in given]
        if self.on and all(one.alias_info is None for one in func._schema.returns):  # no view
            self.bytes += sum(one.nbytes for one in new)
        return results


def weights(*modules: nn.Module) -> int:
    return sum(one.nbytes for module in modules for one in (*module.parameters(), *module.buffers()))


@cache
def parts() -> tuple[int, int, int]:
    """Bytes of the shapes model: all but the UNet, the UNet, and of that the embeddings, which every stage needs."""
    loaded = Models().load(
        ModelConfig(name="shapes", source="package", architecture="shapes"), Scheduler.ddim, torch.device("cpu")
    )
    others = [one for one in loaded.components.values() if isinstance(one, nn.Module) and one is not loaded.unet]
    return weights(*others), weights(loaded.unet), weights(loaded.unet.time_embedding, loaded.unet.add_embedding)


def on_host(call: Callable[..., Any], unet_of: Callable[..., Any], allocated: Allocated) -> Callable[..., Any]:
    """A call that has a use of its own for the fake device: what it leaves is not there."""

    def uncounted(*args: Any) -> Any:
        allocated.on = False
        result = call(*args)
        allocated.on = True
        assert {one.device for one in unet_of(args, result).state_dict().values()} == {torch.device("cpu")}
        return result

    return uncounted


def built(config: ExperimentConfig, rank: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, int]:
    """A rank's step, put together as a run does, and all that was allocated on the device meanwhile."""

    def on_rank(config: ExperimentConfig, ranks: RankContext, pipeline: Any) -> Any:
        return step_of(config).build(config, ranks, pipeline.unet, TrafficCounter())

    allocated = Allocated()
    monkeypatch.setattr(pipelines, "RankPipeline", on_rank)
    for module, name, unet_of in (
        (loading, "_from_files", lambda _, pipeline: pipeline.unet),
        (staged_step, "slice_layers", lambda given, _: given[0]),
    ):
        monkeypatch.setattr(module, name, on_host(getattr(module, name), unet_of, allocated))
    with allocated:
        step = pipelines.build_pipeline(config, RankContext(topology=topology_of(config), rank=rank, device=FAKE))
    return step, allocated.bytes


CASES = (
    ("2gpu_nosplit", "preset=fold"),
    ("2gpu_nosplit", "preset=fold", "preset.cut=[down1.down/up0.attn0]"),
    ("3gpu_nosplit", "preset=fold"),
    ("4gpu_nosplit", "preset=asyncdiff"),
    ("2gpu_nosplit", "preset=asyncdiff"),
)


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_device_never_holds_more_than_its_stage(
    case: tuple[str, ...], typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was allocated there was a weight that stays: the stages are the UNet, and the embeddings once each."""
    topology, *choices = case
    config = effective(typed(f"topology={topology}", *choices))
    ranks = config.topology.world_size
    others, unet, embeddings = parts()
    stages = []
    for rank in range(ranks):
        step, allocated = built(config, rank, monkeypatch)
        assert {one.device for one in step.unet.state_dict().values()} == {FAKE}
        stages.append(allocated - others)
        text = [linear for its in step._text._linears for linear in its]
        assert stages[-1] == weights(step.unet, *text)
    assert sum(stages) == unet + (ranks - 1) * embeddings
    assert max(stages) < unet - min(stages) + 2 * embeddings


def test_a_method_with_all_layers_loads_them_onto_the_device(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file in the model's own format nothing else is allocated; what is counted is what there is."""
    config = effective(typed("preset=reference"))
    others, unet, _ = parts()
    _, allocated = built(config, 0, monkeypatch)
    assert allocated == others + unet


def test_compiled_layers_are_merged_before_they_are_moved(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only convolutions are laid out anew on the device, one after the other."""
    step, allocated = built(effective(typed(TWO, "preset=fold", "engine=compiled")), 1, monkeypatch)
    again = sum(one.nbytes for one in step.unet.state_dict().values() if one.ndim == 4)
    step.close()
    assert allocated - parts()[0] == weights(step.unet) + again


def test_weights_are_not_kept_for_a_run_that_begins_without(typed: Typed) -> None:
    """They would lie beside its own, and count as its memory."""
    begin_without = {"fold", "asyncdiff"}
    for preset in ("reference", "distrifusion", "otil", "tensor", "step_reuse", *begin_without):
        assert _takes_whole_unet(effective(typed(TWO, f"preset={preset}"))) == (preset not in begin_without)
