import torch

from emulated_graph import emulated_graphs
from otil_exp.rank_unet.engine import CudaGraphs
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.traffic import Traffic, TrafficCounter


def inputs(value, timestep, batch=2):
    return StepInputs(
        sample=torch.full((batch, 4, 2, 2), float(value)),
        timestep=torch.as_tensor(timestep),
        encoder_hidden_states=torch.full((batch, 3), float(value)),
        added_cond_kwargs={"text_embeds": torch.full((batch, 2), float(value))},
    )


def graphs(call, example, traffic=None):
    traffic = traffic or TrafficCounter()
    engine = CudaGraphs(traffic, emulated_graphs(traffic))
    engine.capture(0, call, example)
    return engine


def test_a_fractional_timestep_reaches_the_graph_untruncated():
    # captured with an integer timestep, as upstream does: its buffer would hold 500 (pipelines.py:121)
    engine = graphs(lambda i: i.timestep * 1.0, inputs(0, 981))
    assert engine.run(0, None, inputs(0, 500.9)).tolist() == torch.tensor([500.9, 500.9]).tolist()


def test_a_timestep_for_each_picture_is_copied_one_to_one():
    engine = graphs(lambda i: i.timestep * 1.0, inputs(0, 0))
    assert engine.run(0, None, inputs(0, [3.5, 4.5])).tolist() == [3.5, 4.5]


def test_every_input_is_replaced_at_a_replay():
    engine = graphs(
        lambda i: i.sample.sum() + i.encoder_hidden_states.sum() + i.added_cond_kwargs["text_embeds"].sum(),
        inputs(0, 0),
    )
    assert engine.run(0, None, inputs(1, 0)).item() == 2 * 16 + 2 * 3 + 2 * 2


def test_the_callers_tensors_are_not_the_graphs():
    example = inputs(5, 0)
    engine = graphs(lambda i: i.sample + 1, example)
    engine.run(0, None, inputs(1, 0))
    assert example.sample.unique().tolist() == [5.0]


def test_a_result_survives_the_next_replay():
    engine = graphs(lambda i: i.sample + 1, inputs(0, 0))
    first = engine.run(0, None, inputs(1, 0))
    engine.run(0, None, inputs(7, 0))
    assert first.unique().tolist() == [2.0]


def test_the_traffic_of_a_capture_is_counted_at_each_replay_only():
    traffic = TrafficCounter()

    def call(i):
        traffic.add(Traffic(collectives=3, bytes_sent=40))
        return i.sample

    engine = graphs(call, inputs(0, 0), traffic)
    assert traffic.take() == Traffic()
    for _ in range(2):
        engine.run(0, None, inputs(0, 0))
    assert traffic.take() == Traffic(collectives=6, bytes_sent=80)
