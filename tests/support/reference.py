"""FP64 products of quantised operands, and how far a result may lie from them.

The tolerance is relative to sum |a||b| of each element (what the hardware adds up), not to the result, which cancels.
Hopper keeps about 13 bits while it accumulates the 32 products of one instruction; FP32 promotion every 128 of K keeps
that from growing. The simulator adds up in FP32. A BF16 result may in addition be off by its rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from inputs import BLOCK_ROWS, SCALE_COLUMNS, Operand, ceil_div, is_blackwell

# FP64 elements of one dequantised operand that are held at once: 1 GiB.
_CHUNK_ELEMENTS = 1 << 27

# Relative to sum |a||b|: the largest error of any element, and the root of the mean square over all. (Products of
# scales by the tensor cores are within 2^-22, on average 2^-25.)
TOLERANCES = {"cuda": (6e-4, 1e-4), "cpu": (2e-7 + 2.0**-22, 2e-8 + 2.0**-25)}
# Of BF16 operands, whose products are exact: the tensor cores add them up in FP32, and cut off instead of rounding.
BF16_TOLERANCES = {"cuda": (4e-5, 1e-5), "cpu": (2e-6, 2e-7)}
# Of a Blackwell, which adds up all of K in FP32, whatever the operands. (No such GPU has been measured.)
BLACKWELL_TOLERANCES = BF16_TOLERANCES
# Half a unit in the last place, relative to the value.
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}
# The same of subnormal numbers, absolute: only FP16's are met.
MIN_ROUNDING = {torch.bfloat16: 0.0, torch.float16: 2.0**-25, torch.float32: 0.0}


@dataclass(frozen=True)
class Product:
    """`value` is C + A @ B.T in FP64, `magnitude` is |C| + |A| @ |B|.T."""

    value: torch.Tensor
    magnitude: torch.Tensor


@dataclass(frozen=True)
class Difference:
    """How far a result is from a reference, relative to the magnitude, with its output rounding taken off."""

    largest: float
    root_mean_square: float
    missing: int  # elements that are not finite

    def within(self, tolerances: tuple[float, float]) -> bool:
        return self.missing == 0 and self.largest <= tolerances[0] and self.root_mean_square <= tolerances[1]


def dequantise(operand: Operand | torch.Tensor) -> torch.Tensor:
    """[rows, k] in FP64. Scales are per row or per 128 rows, as their shape says; a bare tensor has none."""
    if isinstance(operand, torch.Tensor):
        return operand.double()
    data, scales = operand
    rows, k = data.shape
    if scales.shape[0] != rows:
        assert scales.shape[0] == ceil_div(rows, BLOCK_ROWS), (data.shape, scales.shape)
        scales = scales.repeat_interleave(BLOCK_ROWS, dim=0)[:rows]
    assert scales.shape[1] == ceil_div(k, SCALE_COLUMNS), (data.shape, scales.shape)
    columns = scales.double().repeat_interleave(SCALE_COLUMNS, dim=1)[:, :k]
    return data.double() * columns


def _rows(operand: Operand | torch.Tensor, first: int, last: int) -> Operand | torch.Tensor:
    """Rows `first` to `last`; `first` is a multiple of 128, so that blocks of scales stay whole."""
    if isinstance(operand, torch.Tensor):
        return operand[first:last]
    data, scales = operand
    if scales.shape[0] == data.shape[0]:
        return Operand(data[first:last], scales[first:last])
    return Operand(data[first:last], scales[first // BLOCK_ROWS : ceil_div(last, BLOCK_ROWS)])


def product_nt(
    a: Operand | torch.Tensor, b: Operand | torch.Tensor, c: torch.Tensor | None = None, magnitude: bool = True
) -> Product:
    """The reference of D = C + A @ B.T for A [M, K] and B [N, K], quantised or plain; any size that memory holds.

    Without `magnitude` that part is left zero, in half the time.
    """
    a_data = a if isinstance(a, torch.Tensor) else a[0]
    b_data = b if isinstance(b, torch.Tensor) else b[0]
    m, k = a_data.shape
    n = b_data.shape[0]
    value = torch.zeros((m, n), dtype=torch.float64, device=a_data.device)
    magnitudes = torch.zeros_like(value) if magnitude else value.new_zeros(1).expand(m, n)
    step = max(BLOCK_ROWS, _CHUNK_ELEMENTS // max(k, 1) // BLOCK_ROWS * BLOCK_ROWS)
    for column in range(0, n, step):
        b_part = dequantise(_rows(b, column, min(column + step, n)))
        for row in range(0, m, step):
            a_part = dequantise(_rows(a, row, min(row + step, m)))
            value[row : row + step, column : column + step] = a_part @ b_part.T
            if magnitude:
                magnitudes[row : row + step, column : column + step] = a_part.abs() @ b_part.abs().T
    if c is not None:
        value += c.double()
        if magnitude:
            magnitudes += c.double().abs()
    return Product(value, magnitudes)


def difference(d: torch.Tensor, reference: Product) -> Difference:
    value = d.double()
    missing = int((~value.isfinite()).sum().item())
    rounding = (ROUNDING[d.dtype] * reference.value.abs()).clamp(min=MIN_ROUNDING[d.dtype])
    excess = ((value - reference.value).abs() - rounding).clamp(min=0)
    relative = torch.where(reference.magnitude > 0, excess / reference.magnitude, excess).nan_to_num(nan=float("inf"))
    if relative.numel() == 0:
        return Difference(0.0, 0.0, 0)
    return Difference(relative.max().item(), relative.square().mean().sqrt().item(), missing)


def assert_matches(
    d: torch.Tensor, reference: Product, what: str = "", tolerances: dict[str, tuple[float, float]] = TOLERANCES
) -> None:
    found = difference(d, reference)
    if is_blackwell(d.device):
        tolerances = BLACKWELL_TOLERANCES
    allowed = tolerances[d.device.type]
    assert found.within(allowed), f"{what or 'result'} {tuple(d.shape)} {d.dtype}: {found}, allowed {allowed}"
