"""What the formats of E2M1 share: two codes a byte along K, the first one in the low nibble."""

from __future__ import annotations

import torch

from ...utils.math import _unpack_codes
from ..matrix import Matrix
from .config import Config
from .layer import rows_of


def require_e2m1(config: Config, group: int) -> None:
    """What a config says of such weights, if it does."""
    weights = config.of_weights()
    for keys in (config, weights):
        keys.require_bits("bits", "num_bits")
        size = keys.group_size("group_size")
        if size not in (None, group):
            raise ValueError(f"config's group_size must be {group} of this format, got {size}")
    weights.choice("type", ("float",))


def matrix_of_pairs(pairs: torch.Tensor, scales: torch.Tensor, second_scales: torch.Tensor | None = None) -> Matrix:
    n, k = pairs.shape[0], 2 * pairs.shape[1]
    return Matrix(
        n,
        k,
        lambda first, last: _unpack_codes(pairs[first:last]),
        scales,
        second_scales=second_scales,
        read_pairs=rows_of(pairs),
    )
