import sys
from importlib import import_module

import diffusers.models.resnet
import pytest

from otil_exp.upstream.imports import imported


@pytest.fixture
def _never_imported(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "distrifuser"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("_never_imported")
def test_distrifuser_imports_inside_the_block_only():
    with pytest.raises(ImportError):
        import_module("distrifuser.pipelines")
    with imported():
        import_module("distrifuser.pipelines")


def test_no_trace_is_left_in_diffusers():
    with imported():
        assert "diffusers.models.unet_2d_condition" in sys.modules
    assert "diffusers.models.unet_2d_condition" not in sys.modules
    assert not hasattr(diffusers.models.resnet, "USE_PEFT_BACKEND")


def test_a_missing_distrifuser_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distrifuser", None)
    with pytest.raises(ImportError, match=r"pip install --no-deps distrifuser==0\.0\.1b1"), imported():
        import distrifuser  # noqa: F401
