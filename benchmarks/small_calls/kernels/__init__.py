"""Candidates for small calls, in Triton: operators that torch.compile and CUDA graphs take."""
