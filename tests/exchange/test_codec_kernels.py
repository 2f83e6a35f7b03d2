"""On a GPU, encode and decode are one kernel each: the same bytes and values as the plain form on the CPU."""

import pytest
import torch

from otil_exp.exchange import Codec

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

QUANTIZERS = ["fp8", "int8", "int4"]
COUNTS = [1, 127, 128, 5000, 32 * 128 + 1]
"""Less than a group, a group, groups with a rest, and one value more than a program takes."""


def wild(count, dtype):
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(count, generator=generator) * 10 ** (4 * torch.rand(count, generator=generator) - 3)
    values[::7] = 0
    values[128:256] = 0
    return values.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_the_same_bytes_and_the_same_values(quantizer, count, dtype):
    codec, values = Codec(quantizer), wild(count, dtype)
    plain, encoded = codec.encode(values), codec.encode(values.cuda())
    assert torch.equal(encoded.cpu(), plain)
    decoded = codec.decode(encoded, count, dtype)
    assert decoded.dtype == dtype
    assert torch.equal(decoded.cpu(), codec.decode(plain, count, dtype))


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_both_are_replayed_by_a_cuda_graph(quantizer):
    codec, values = Codec(quantizer), wild(5000, torch.float16).cuda()
    codec.decode(codec.encode(values), 5000, torch.float16)  # kernels are compiled here, which a capture could not bear
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoded = codec.decode(codec.encode(values), 5000, torch.float16)
    values.mul_(-0.5)
    graph.replay()
    assert torch.equal(decoded, codec.decode(codec.encode(values), 5000, torch.float16))
