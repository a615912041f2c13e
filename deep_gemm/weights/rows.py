"""MXFP4 as Blackwell (SM100) multiplies it: rows of codes, and exponents (csrc: Element::e2m1r).

Nothing is converted there. `codes` are uint8 `[G, N, bytes]`: two codes a byte along K, the first one in the low
nibble, and rows filled up with zeros to a multiple of 128 of K, which is what the copy engine reads. `scales` are int32
`[G, K / 128, N]`, N contiguous and rounded up to a multiple of 128: words of four UE8M0 exponents, one for each 32 of
K, the lowest K in the low byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._extension import C
from ..utils.math import _FP32_MANTISSA_BITS, _unpack_codes, align
from . import codes as code
from .groups import Groups
from .matrix import Matrix
from .packings import K_BLOCK, SMALLEST_GROUP, Packing
from .stored_scales import exact_scales, without_scale
from .write_codes import require_range

_EXPONENTS_A_WORD = 4
_MIN_BITS = 0x00400000  # of 2^-127, a subnormal number
_MAX_EXPONENT = 254


def are_multiplied_on(tensor: torch.Tensor) -> bool:
    """Whether kernels of this tensor's device multiply rows."""
    return f"{C.scale_layout_arch(tensor)} multiplies_rows" in C.layout_facts().splitlines()


def row_bytes(k: int) -> int:
    return align(k, K_BLOCK) // 2


def pack_rows(
    matrices: Sequence[Matrix], packing: Packing, element: str, group_size: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of matrices of one size."""
    n, k = matrices[0].n, matrices[0].k
    groups = Groups(n, k, group_size, SMALLEST_GROUP)
    scales = torch.stack([_words(groups.stored(_powers(matrix, groups))) for matrix in matrices])
    codes = torch.zeros((len(matrices), n, row_bytes(k)), dtype=torch.uint8, device=scales.device)
    for matrix, target in zip(matrices, codes, strict=True):
        _write(target, without_scale(matrix, groups), packing, element)
    return codes, scales


def codes_of(rows: torch.Tensor, k: int) -> torch.Tensor:
    """uint8 `[rows, K]` of a matrix's `codes`."""
    return _unpack_codes(rows)[:, :k]


def scales_of(words: torch.Tensor) -> torch.Tensor:
    """FP32 `[K / 32, rows]` of a matrix's `scales`."""
    count, rows = words.shape
    exponents = words.contiguous().view(torch.uint8).view(count, rows, _EXPONENTS_A_WORD).permute(0, 2, 1)
    bits = exponents.flatten(0, 1).to(torch.int32) << _FP32_MANTISSA_BITS
    return bits.masked_fill(bits == 0, _MIN_BITS).view(torch.float32)


def _write(target: torch.Tensor, matrix: Matrix, packing: Packing, element: str) -> None:
    for first, last in code.row_chunks(matrix.n, matrix.k):
        if matrix.read_pairs is not None:
            pairs = matrix.read_pairs(first, last).view(torch.uint8)
        else:
            values = matrix.read(first, last)
            require_range(values, packing, element)
            values = torch.nn.functional.pad(values.view(torch.uint8), (0, matrix.k % 2))
            pairs = values[:, 0::2] | values[:, 1::2] << 4
        target[first:last, : pairs.shape[1]] = pairs


def _powers(matrix: Matrix, groups: Groups) -> torch.Tensor:
    """A matrix's scales, `[N, groups]`, 1 in the place of 0: codes become 0 there."""
    scales = exact_scales(groups.checked("scales", matrix.scales))
    scales = scales.masked_fill(scales == 0, 1)
    bits = scales.contiguous().view(torch.int32)
    exponents = bits >> _FP32_MANTISSA_BITS
    is_power = (bits == exponents << _FP32_MANTISSA_BITS) & (exponents > 0) & (exponents <= _MAX_EXPONENT)
    wrong = ~(is_power | (bits == _MIN_BITS))
    if bool(wrong.any()):
        raise ValueError(
            f"scales of e2m1 beside FP8 activations must be powers of two on Blackwell (SM100), which multiplies "
            f"exponents, but one is {scales[wrong][0].item():g}: quantise the weights with "
            "deep_gemm.utils.quantize_to_mxfp4"
        )
    return scales


def _words(scales: torch.Tensor) -> torch.Tensor:
    """FP32 `[K / 32, rows]` of powers of two, or 0 where there is nothing -> int32 `[K / 128, rows]`."""
    exponents = (scales.view(torch.int32) >> _FP32_MANTISSA_BITS).to(torch.uint8)
    in_words = exponents.view(-1, _EXPONENTS_A_WORD, scales.shape[1]).permute(0, 2, 1).contiguous()
    return in_words.view(torch.int32).squeeze(2)
