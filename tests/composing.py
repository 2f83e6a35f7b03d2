"""Types of the fixtures that compose configs (conftest.py)."""

from __future__ import annotations

from collections.abc import Callable

from omegaconf import DictConfig

from otil_exp.config import ExperimentConfig

Compose = Callable[..., DictConfig]
Typed = Callable[..., ExperimentConfig]
