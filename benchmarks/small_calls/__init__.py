"""What small calls of a rank's step take, and what kernels made for them would: see small_calls.md."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads as kernels are defined
