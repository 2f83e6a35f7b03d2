"""Which form of a codec is used where."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from otil_exp.exchange import codec


@pytest.mark.parametrize(("quantizer", "by_kernel"), [("int8", True), ("int6", False)])
def test_a_quantizer_without_a_kernel_has_the_plain_form_on_a_gpu(
    quantizer: str, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = SimpleNamespace(QUANTIZERS=("int8",))
    monkeypatch.setattr(codec, "find_spec", lambda name: name)
    monkeypatch.setattr(codec, "import_module", lambda name: kernels)
    codec._kernels.cache_clear()
    try:
        assert (codec._kernels(torch.device("cuda"), quantizer) is kernels) == by_kernel
    finally:
        codec._kernels.cache_clear()
