"""What follows from a cell's numbers: topology, slices, blocks, warm-up."""

from __future__ import annotations

from otil_exp.config import ExperimentConfig
from otil_exp.methods.method import Depth, Slicing
from otil_exp.methods.rooms import method_of
from otil_exp.metrics.seam.boundaries import Boundaries, boundaries
from otil_exp.models.architecture import architecture_of
from otil_exp.schedule import Step
from otil_exp.topology import Topology


def topology_of(config: ExperimentConfig) -> Topology:
    """The topology of a cell: one rank for the reference, whatever topology= says."""
    return method_of(config).topology(config.preset, config)


def is_reference(effective: ExperimentConfig) -> bool:
    """Whether an effective config is the one that others are compared with: any method on one rank comes to it."""
    return effective.topology.world_size == 1


def slicing_of(config: ExperimentConfig) -> Slicing:
    """Into how many slices the cell's pictures are cut."""
    return method_of(config).slicing(config.preset, config)


def seams_of(config: ExperimentConfig) -> Boundaries:
    """Where the slices of a picture meet, in pixels."""
    slicing = slicing_of(config)
    return Boundaries(
        rows=tuple(boundaries(config.height, slicing.rows)), columns=tuple(boundaries(config.width, slicing.columns))
    )


def depth_of(config: ExperimentConfig) -> Depth | None:
    """How the UNet of an effective config is cut by depth; None where it is not."""
    return method_of(config).depth(config.preset, config)


def latent_size(config: ExperimentConfig) -> tuple[int, int]:
    """Height and width of the latent, in latent pixels."""
    factor = architecture_of(config.model).vae_factor
    return config.height // factor, config.width // factor


def uses(config: ExperimentConfig, setting: str) -> bool:
    """Whether the cell's method does something with a setting outside `preset` (methods.method.OPTIONAL)."""
    return setting in method_of(config).uses(config.preset, config)


def steps_of(config: ExperimentConfig) -> tuple[Step, ...]:
    """The steps of a picture of an effective config."""
    return method_of(config).steps(config.preset, config)
