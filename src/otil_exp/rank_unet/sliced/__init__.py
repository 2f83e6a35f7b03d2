"""A UNet over slices of rows as plain modules, so that torch.compile takes a whole step.

What a layer needs of the other slices is its context: a tensor that a synchronous step renews and a silent one reads.
Renewing takes a collective a layer, since each layer's context depends on the layers before it; only GroupNorm and the
convolution after it share one (NormedConv), because what lies between them works element by element.
The arithmetic is that of distrifuser's layers in modes full_sync and no_sync with exact GroupNorm; those layers
themselves change attributes at every call, for which torch.compile would make a new graph in every step.
"""

from otil_exp.rank_unet.sliced.layers import SlicedLayers

__all__ = ["SlicedLayers"]
