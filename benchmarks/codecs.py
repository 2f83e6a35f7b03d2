"""What the codecs take on a GPU: microseconds to encode and to decode.

    python -m benchmarks.codecs

21 million fp16 values: what a slice's layers hand to a peer in a step at 1024². CUDA events around graph replays,
medians.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import replayed
from otil_exp.exchange import Codec

VALUES = 21_000_000
ROUNDS, REPLAYS = 30, 10


def main() -> None:
    values = torch.randn(VALUES, device="cuda").half()
    copied = torch.empty_like(values)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {VALUES:,} fp16 values")
    print(f"copy {microseconds(lambda: copied.copy_(values)):.0f} us")
    for quantizer in ("int8", "int4", "fp8", "int2", "int1"):
        codec = Codec(quantizer)
        encoded = codec.encode(values)
        there = microseconds(lambda codec=codec: codec.encode(values))
        back = microseconds(lambda codec=codec, encoded=encoded: codec.decode(encoded, VALUES, torch.float16))
        print(f"{quantizer}: encode {there:.0f} us, decode {back:.0f} us, together {there + back:.0f} us")


def microseconds(call: Callable[[], object]) -> float:
    return replayed.microseconds([call], rounds=ROUNDS, replays=REPLAYS)


if __name__ == "__main__":
    main()
