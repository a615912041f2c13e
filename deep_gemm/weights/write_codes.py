"""Codes into blocks: by the runtime's kernel on a GPU, by torch elsewhere, to the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._extension import C
from ..utils.math import align
from . import codes as code
from .matrix import Matrix
from .packings import ELEMENT_NUMBERS, FOLDED, K_BLOCK, Packing
from .words import to_words

_OUT_OF_RANGE, _MINUS_EIGHT = 1, 2  # bits of what packing finds, as csrc/api/prepare/pack_weights.hpp has them


def write_codes(
    codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, element: str, orders: Sequence[str]
) -> str:
    """Fills `codes` in the first of `orders` that can hold all of them, which is returned."""
    write = _write_with_kernel if codes.is_cuda else _write_with_torch
    for order in orders:
        found = write(codes, matrices, packing, order)
        if found & _OUT_OF_RANGE and element == "e4m3":
            raise ValueError("values of 'e4m3' must not be NaN")
        if found & _OUT_OF_RANGE:
            for matrix in matrices:
                for first, last in code.row_chunks(matrix.n, matrix.k):
                    require_range(matrix.read(first, last), packing, element)
        if not found & _MINUS_EIGHT:
            return order
    raise AssertionError("the last order holds all codes")


def _write_with_kernel(codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, order: str) -> int:
    """Fills `codes`. Returns what was found: `_OUT_OF_RANGE`, or `_MINUS_EIGHT` where the order has none."""
    found = torch.zeros(1, dtype=torch.int32, device=codes.device)
    for expert, matrix in enumerate(matrices):
        pairs = matrix.read_pairs is not None
        read = matrix.read_pairs or matrix.read
        for first, last in code.row_chunks(matrix.n, matrix.k):
            values = read(first, last)
            values = values if values.stride(-1) == 1 else values.contiguous()
            C.pack_codes(
                values.unsqueeze(0),
                codes[expert : expert + 1, _blocks(first, last)],
                found,
                ELEMENT_NUMBERS[order],
                packing.places is not None,
                packing.smallest,
                packing.offset != 0,
                pairs,
            )
    return int(found)


def _write_with_torch(codes: torch.Tensor, matrices: Sequence[Matrix], packing: Packing, order: str) -> int:
    """The same of CPU tensors, or else what keeps them from being packed so."""
    columns = codes.shape[2] * K_BLOCK
    for expert, matrix in enumerate(matrices):
        for first, last in code.row_chunks(matrix.n, matrix.k):
            values = matrix.read(first, last)
            if order == "e4m3p":
                values = values.view(torch.uint8)
                if bool((values & 0x7F == 0x7F).any()):
                    return _OUT_OF_RANGE
            smallest, largest = (int(extreme) for extreme in torch.aminmax(values))
            if smallest < packing.smallest or largest > packing.largest:
                return _OUT_OF_RANGE
            if order == "s4m" and smallest - packing.offset == -8:
                return _MINUS_EIGHT
            values = values.to(torch.int8) - packing.offset
            padding = (0, columns - matrix.k, 0, align(last - first, code.PADDED_ROWS) - (last - first))
            codes[expert, _blocks(first, last)] = _ordered(torch.nn.functional.pad(values, padding), packing, order)
    return 0


def _ordered(values: torch.Tensor, packing: Packing, order: str) -> torch.Tensor:
    """Blocks of values less the packing's offset."""
    if packing.places is not None:
        return to_words((values + packing.added).view(torch.uint8), packing.places)
    blocks = code.to_blocks(values)
    if order == packing.zeros_order:
        return blocks ^ code.UNSIGNED
    in_order = {"s4m": code.to_sign_magnitude, FOLDED: code.to_lookup}
    return in_order[order](blocks) if order in in_order else blocks


def _blocks(first: int, last: int) -> slice:
    """Those of a chunk of rows."""
    return slice(first // code.BLOCK_ROWS, align(last, code.PADDED_ROWS) // code.BLOCK_ROWS)


def require_range(values: torch.Tensor, packing: Packing, element: str) -> None:
    """Some rows of a matrix."""
    smallest, largest = (int(extreme) for extreme in torch.aminmax(values))
    if smallest < packing.smallest or largest > packing.largest:
        wrong = smallest if smallest < packing.smallest else largest
        raise ValueError(
            f"values of {element!r} must lie within {packing.smallest}..{packing.largest}, but one is {wrong}"
        )
