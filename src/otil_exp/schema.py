"""What Hydra composes configs on: the schema, every family of methods, and ${expanduser:} for folders of the user."""

from __future__ import annotations

from os.path import expanduser

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from otil_exp.config import ExperimentConfig
from otil_exp.methods.rooms import families


def register_schema() -> None:
    """Make known to Hydra what conf/config.yaml and conf/preset/*.yaml stand on."""
    store = ConfigStore.instance()
    store.store(name="schema", node=ExperimentConfig, provider="otil_exp")
    for room, family in families().items():
        store.store(group="preset/family", name=room, node=family, provider="otil_exp")
    OmegaConf.register_new_resolver("expanduser", expanduser, replace=True)
