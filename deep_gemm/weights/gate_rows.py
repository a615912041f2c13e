"""Rows of gates and ups as tiles of gated activations have them: 8 gates, and then the 8 ups that belong to them
(include/deep_gemm/gate.cuh). Packed weights lie so, because kernels read them in the order in which they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from .._gates import ROWS, SIDE
from .matrix import Matrix


def rows_in_order(n: int, gate_up: str) -> torch.Tensor:
    """int64 `[N]`: the row of the weights that each packed row is."""
    return _joined(torch.arange(n), gate_up)


def checked_rows(gate_up: str | None, n: int) -> None:
    if gate_up is None:
        return
    if gate_up not in ROWS:
        raise ValueError(f"gate_up must be None, {' or '.join(map(repr, ROWS))}, got {gate_up!r}")
    if n % (2 * SIDE) != 0:
        raise ValueError(f"N must be a multiple of {2 * SIDE} where gate_up is given, got {n}")


def in_gate_order(matrix: Matrix, gate_up: str) -> Matrix:
    """The same weights, their rows in that order."""

    def joined(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return _joined(tensor, gate_up) if tensor is not None and tensor.shape[:1] == (matrix.n,) else tensor

    scales = joined(matrix.scales)
    assert scales is not None
    return replace(
        matrix,
        read=_reader(matrix.read, matrix.n, gate_up),
        scales=scales,
        zeros=joined(matrix.zeros),
        second_scales=joined(matrix.second_scales),
        scaled_zeros=joined(matrix.scaled_zeros),
        read_pairs=None if matrix.read_pairs is None else _reader(matrix.read_pairs, matrix.n, gate_up),
    )


Read = Callable[[int, int], torch.Tensor]


def _reader(read: Read, n: int, gate_up: str) -> Read:
    def rows(first: int, last: int) -> torch.Tensor:
        step = 2 * SIDE
        start, end = first // step * step, min(-(-last // step) * step, n)
        if gate_up == "halves":
            half = n // 2
            parts = read(start // 2, end // 2), read(half + start // 2, half + end // 2)
            found = _joined(torch.cat(parts), gate_up)
        else:
            found = _joined(read(start, end), gate_up)
        return found[first - start : last - start]

    return rows


def _joined(rows: torch.Tensor, gate_up: str) -> torch.Tensor:
    """Some rows of gates with the ups that belong to them, in B's order, 8 by 8."""
    rest = rows.shape[1:]
    if gate_up == "halves":
        return rows.reshape(2, -1, SIDE, *rest).transpose(0, 1).reshape(rows.shape)
    return rows.reshape(-1, SIDE, 2, *rest).transpose(1, 2).reshape(rows.shape)
