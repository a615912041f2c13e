"""Weights of few bits, packed once in the order in which kernels convert them."""

from .checkpoint import weights_from_checkpoint
from .pack import pack_weights
from .packed import PackedWeights

__all__ = ["PackedWeights", "pack_weights", "weights_from_checkpoint"]
