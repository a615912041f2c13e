"""Inputs of tests and benchmarks: operands quantised as a user would, awkward layouts, outputs that tell on writers.

Everything works on the CPU and on the GPU. The casts are written here on their own, so that a fault in deep_gemm.utils
cannot hide one in a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch

FP8 = torch.float8_e4m3fn
FP8_LARGEST = 448.0
SCALE_COLUMNS = 128
BLOCK_ROWS = 128
CONVERTING_TARGETS = ("sm_80", "sm_86", "sm_87", "sm_88", "sm_110")


class Operand(NamedTuple):
    """Quantised data with its scales: the `(t, sf)` pair of the public API."""

    data: torch.Tensor
    scales: torch.Tensor


def is_blackwell(device: torch.device | str) -> bool:
    """The GPU, or what the simulator is now."""
    return _target(device).startswith("sm_10")


def takes_powers_of_two(device: torch.device | str) -> bool:
    """Whether scales of FP8 must be some there, as long as a call does not say otherwise."""
    import deep_gemm

    return is_blackwell(device) and not deep_gemm.get_fp32_scales(device)


def converts_e4m3(device: torch.device | str) -> bool:
    """Whether this is a GPU whose tensor cores take no E4M3, or stands in for one."""
    return _target(device) in CONVERTING_TARGETS


def _target(device: torch.device | str) -> str:
    import deep_gemm

    return deep_gemm.get_target(device)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def random_values(shape: Sequence[int], device: torch.device | str, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(*shape, device=device, generator=generator, dtype=torch.float32)


def _quantise(x: torch.Tensor, rows: int, powers_of_two: bool) -> Operand:
    """Quantise [..., mn, k] with one scale per `rows` x 128."""
    *groups, mn, k = x.shape
    padded = torch.zeros(
        *groups,
        ceil_div(mn, rows) * rows,
        ceil_div(k, SCALE_COLUMNS) * SCALE_COLUMNS,
        dtype=torch.float32,
        device=x.device,
    )
    padded[..., :mn, :k] = x
    blocks = padded.view(*groups, ceil_div(mn, rows), rows, ceil_div(k, SCALE_COLUMNS), SCALE_COLUMNS)
    scales = blocks.abs().amax(dim=(-3, -1)).clamp(min=1e-4) / FP8_LARGEST
    if powers_of_two:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    data = (blocks / scales[..., :, None, :, None]).to(FP8).view(padded.shape)
    return Operand(data[..., :mn, :k].contiguous(), scales)


def quantise_rows(x: torch.Tensor, powers_of_two: bool = False) -> Operand:
    """FP8 with one FP32 scale per row and 128 columns; the scales are row-major."""
    return _quantise(x, 1, powers_of_two)


def quantise_blocks(x: torch.Tensor, powers_of_two: bool = False) -> Operand:
    """FP8 with one FP32 scale per 128 x 128."""
    return _quantise(x, BLOCK_ROWS, powers_of_two)


def random_rows(shape: Sequence[int], device: torch.device | str, seed: int) -> Operand:
    """With scales as the device multiplies them."""
    return quantise_rows(random_values(shape, device, seed), takes_powers_of_two(device))


def random_blocks(shape: Sequence[int], device: torch.device | str, seed: int) -> Operand:
    return quantise_blocks(random_values(shape, device, seed), takes_powers_of_two(device))


def _no_scales(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """NaN, of exponents too: what may lie between scales."""
    full = torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    full.view(torch.uint8).fill_(0xFF)
    return full


def mn_major(scales: torch.Tensor) -> torch.Tensor:
    """The same scales with contiguous rows, padded to 16 bytes; the padding is NaN."""
    *groups, mn, k = scales.shape
    elements = 16 // scales.dtype.itemsize
    padded = _no_scales((*groups, k, ceil_div(mn, elements) * elements), scales)
    padded[..., :mn] = scales.transpose(-1, -2)
    return padded[..., :mn].transpose(-1, -2)


def with_row_padding(data: torch.Tensor, padding: int) -> torch.Tensor:
    """The same values in rows that are `padding` elements further apart, with NaN between them."""
    *groups, mn, k = data.shape
    wide = torch.full((*groups, mn, k + padding), float("nan"), dtype=torch.float32, device=data.device).to(data.dtype)
    wide[..., :k] = data
    return wide[..., :k]


def with_awkward_strides(scales: torch.Tensor) -> torch.Tensor:
    """The same values with gaps of NaN along both dimensions."""
    *groups, mn, k = scales.shape
    wide = _no_scales((*groups, mn * 2 + 1, k * 3 + 2), scales)
    view = wide[..., 1 : 1 + mn * 2 : 2, 2 : 2 + k * 3 : 3]
    view.copy_(scales)
    return view


def misplaced(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of the CPU that starts one byte behind where its elements may."""
    count = math.prod(shape)
    tensor = torch.frombuffer(bytearray(count * dtype.itemsize + 16), dtype=dtype, offset=1, count=count)
    assert tensor.data_ptr() % dtype.itemsize != 0
    return tensor.view(shape)


class GuardedOutput:
    """An output tensor in the middle of a larger one that is filled with NaN of one bit pattern.

    `tensor` is what the call writes. `check()` fails if anything outside it changed or anything inside was left over.
    """

    _BITS: ClassVar = {
        torch.bfloat16: (torch.int16, 0x7FB1),
        torch.float16: (torch.int16, 0x7FB1),
        torch.float32: (torch.int32, 0x7FB1B2B3),
        torch.float8_e4m3fn: (torch.uint8, 0xFF),
        torch.int8: (torch.uint8, 0x80),  # no code of the symmetric casts
        torch.int32: (torch.int32, 0x7FB1B2B3),  # no NaN, but no sum of small integers either
    }

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str,
        row_stride: int | None = None,
        offset: int = 64,
    ) -> None:
        """`row_stride` counts elements between rows (default: no gap); `offset` elements lie before the first one."""
        *groups, rows, columns = shape
        row_stride = columns if row_stride is None else row_stride
        strides = [row_stride, 1]
        for extent in reversed([*groups[1:], rows] if groups else []):
            strides.insert(0, strides[0] * extent)
        elements = offset + (strides[0] * shape[0] if shape else 1) + 64
        bits, self.pattern = self._BITS[dtype]
        self._bits = torch.full((elements,), self.pattern, dtype=bits, device=device)
        self._strides = strides
        self._offset = offset
        self.tensor = self._bits.view(dtype).as_strided(tuple(shape), strides, offset)

    def check(self, complete: bool = True) -> None:
        outside = torch.ones_like(self._bits, dtype=torch.bool)
        outside.as_strided(self.tensor.shape, self._strides, self._offset).fill_(False)
        touched = (outside & (self._bits != self.pattern)).nonzero().flatten()
        assert touched.numel() == 0, (
            f"{touched.numel()} elements outside the output were written, the first {touched[0].item() - self._offset} "
            f"elements from its start; shape {tuple(self.tensor.shape)}, strides {self._strides}"
        )
        if complete:
            poison = self.tensor.float().isnan() if self.tensor.is_floating_point() else self.tensor == self.pattern
            left = poison.sum().item()
            assert left == 0, f"{left} of {self.tensor.numel()} elements are NaN: never written, or made from garbage"

    def assert_untouched(self) -> None:
        assert (self._bits == self.pattern).all(), "a refused call wrote to the output"
