"""Layers of torch that multiply by this library: to train in FP8, and to serve weights of any format.

`FP8Linear` and `GroupedExperts` train and serve; `QuantLinear` serves weights of few bits as checkpoints have them, and
so do `GatedMLP` and `GroupedExperts.from_checkpoint`. `convert` puts them in the place of a model's layers.
"""

from .convert import Report, convert
from .cuts import ExpertCut
from .experts import GroupedExperts
from .fp8_linear import FP8Linear
from .gated_mlp import GatedMLP
from .quant_linear import QuantLinear

__all__ = ["ExpertCut", "FP8Linear", "GatedMLP", "GroupedExperts", "QuantLinear", "Report", "convert"]
