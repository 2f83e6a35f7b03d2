"""Tiny models as files, written once a worker: what a user types to have them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_sdxl

Words = tuple[str, ...]


@pytest.fixture(scope="session")
def two_levels(tmp_path_factory: pytest.TempPathFactory) -> Words:
    return _written(tmp_path_factory.mktemp("two_levels"), (16, 32))


@pytest.fixture(scope="session")
def three_levels(tmp_path_factory: pytest.TempPathFactory) -> Words:
    return _written(tmp_path_factory.mktemp("three_levels"), (16, 32, 32))


def _written(folder: Path, channels: tuple[int, ...]) -> Words:
    unet = tiny_sdxl.tiny_unet(channels=channels)
    tiny_sdxl.tiny_pipeline(unet, folder / "tokenizer_of_both").save_pretrained(folder)
    return tiny_sdxl.words(folder)
