"""OTIL's exchange (Only Transmit Informative Latents): blocks, scores, polling, collectives.

Pure tensor code over torch and torch.distributed, readable beside the CVPR 2026 paper and docs/methods.md.
A *slice* is the rows of the latent that one rank owns; a *block* is a square piece of a slice. LatentExchange sends
blocks of the latent (preset=guide), ContextExchange their context in all layers (preset=otil_context).
"""

from otil_exp.exchange.blocks import BlockGrid, resolve_budget
from otil_exp.exchange.codec import QUANTIZERS, Codec
from otil_exp.exchange.coded import CodedContext
from otil_exp.exchange.context import ContextExchange, Selection
from otil_exp.exchange.context_map import check_blocks, split_budget
from otil_exp.exchange.gather import gather
from otil_exp.exchange.guidance import repair_pair
from otil_exp.exchange.polling import Polling
from otil_exp.exchange.replayed import ReplayedExchange
from otil_exp.exchange.score import SCORES, cosine_dissimilarity
from otil_exp.exchange.transmit import LatentExchange

__all__ = [
    "QUANTIZERS",
    "SCORES",
    "BlockGrid",
    "Codec",
    "CodedContext",
    "ContextExchange",
    "LatentExchange",
    "Polling",
    "ReplayedExchange",
    "Selection",
    "check_blocks",
    "cosine_dissimilarity",
    "gather",
    "repair_pair",
    "resolve_budget",
    "split_budget",
]
