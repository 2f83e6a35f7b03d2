"""hydra/sweeper=grid: Hydra's basic sweeper, but for the configs that it composes and throws away."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore


@dataclass
class GridSweeperConf(BasicSweeperConf):
    """Schema of hydra/sweeper=grid: that of the basic one."""

    _target_: str = "hydra_plugins.otil_exp_launcher.sweeper.GridSweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridSweeperConf, provider="otil_exp")


class GridSweeper(BasicSweeper):
    """Leaves it to the launcher to compose the cells: ours check all of them before the first one starts."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Pass: a second look at every cell takes a grid of a thousand a minute."""
