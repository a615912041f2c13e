"""Comparing results and counting memory."""

from __future__ import annotations

from typing import Any

import torch


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """How far `x` is from `y`: 1 - 2xy / (xx + yy) over all elements in FP64. 0 is equal; NaN in either gives NaN."""
    x, y = x.double(), y.double()
    denominator = (x * x + y * y).sum()
    if denominator == 0:
        return 0.0  # both are all zero
    return float(1 - 2 * (x * y).sum() / denominator)


def count_bytes(*tensors: Any) -> int:
    """Bytes of all tensors in the arguments; tuples and lists are looked into, None counts nothing."""
    total = 0
    for item in tensors:
        if isinstance(item, (tuple, list)):
            total += count_bytes(*item)
        elif item is not None:
            total += item.numel() * item.element_size()
    return total


def assert_bitwise_equal(x: torch.Tensor, y: torch.Tensor, message: str = "") -> None:
    """Raise AssertionError, beginning with `message`, unless shapes, dtypes and all bits of x and y are equal."""
    what = f"{message}: " if message else ""
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        raise AssertionError(f"{what}{x.dtype} {[*x.shape]} is compared with {y.dtype} {[*y.shape]}")
    left, right = (
        t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).view(x.numel(), x.element_size())
        for t in (x, y.to(x.device))
    )
    different = (left != right).any(1).view(x.shape)
    if bool(different.any()):
        first = tuple(different.nonzero()[0].tolist())
        raise AssertionError(
            f"{what}{int(different.sum())} of {x.numel()} elements differ, the first at {first}: {x[first].item()} and "
            f"{y[first].item()}"
        )
