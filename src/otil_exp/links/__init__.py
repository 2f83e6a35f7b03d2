"""What a message costs on a link between GPUs: files of curves, their measurement, and steps projected from them."""

from otil_exp.links.files import read_links, shipped, write_links
from otil_exp.links.link import Curve, Links

__all__ = ["Curve", "Links", "read_links", "shipped", "write_links"]
