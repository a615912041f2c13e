"""deep_gemm.utils.per_token_cast_to_nvfp4 against its formula, number by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inputs import random_values
from matrix import decoded

from deep_gemm import utils

VALUES = decoded("e2m1r", torch.arange(8)).tolist()
E4M3_NUMBERS = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double().tolist()


def nearest(value: float, numbers: list[float]) -> int:
    """The index of the nearest number; of two equally near ones the even."""
    distances = [abs(float(value) - number) for number in numbers]
    return min((i for i, distance in enumerate(distances) if distance == min(distances)), key=lambda i: i % 2)


def cast(x: list[list[float]], whole: np.float32) -> tuple[list[list[int]], list[list[int]]]:
    """Codes, and codes of scales, of rows: in FP32."""
    codes, scales = [], []
    for row in x:
        codes.append([])
        scales.append([])
        for first in range(0, len(row), 16):
            group = [np.float32(value) for value in row[first : first + 16]]
            wanted = np.float32(max(map(abs, group)) / np.float32(6)) / whole
            scales[-1].append(nearest(min(wanted, np.float32(448)), E4M3_NUMBERS))
            scale = np.float32(E4M3_NUMBERS[scales[-1][-1]]) * whole
            for value in group:
                code = nearest(min(abs(value / scale), 6), VALUES) if scale > 0 else 0
                codes[-1].append(code + 8 * (code > 0 and value < 0))
    return codes, scales


def unpacked(packed: torch.Tensor) -> list[list[int]]:
    pairs = packed.view(torch.uint8).int()
    return torch.stack([pairs & 15, pairs >> 4], -1).flatten(1).tolist()


@pytest.mark.parametrize("given", [None, 0.01, torch.tensor(2.0**-9)], ids=str)
@pytest.mark.parametrize("n", [2, 16, 50])
def test_it_does_what_its_formula_says(n, given) -> None:
    x = random_values((6, n), "cpu", n) * torch.tensor([1.0, 1e-7, 1e-3, 30, 0, 5])[:, None]
    x[5] = torch.tensor([6.0, 0.25, -0.75, 1.25, -2.5, 5, 3.5, 1.75]).repeat(n)[:n]  # ties
    packed, scales, whole = utils.per_token_cast_to_nvfp4(x, given)
    assert (packed.dtype, packed.shape) == (torch.int8, (6, n // 2))
    assert (scales.dtype, scales.shape) == (torch.float8_e4m3fn, (6, utils.ceil_div(n, 16)))
    assert (whole.dtype, whole.shape) == (torch.float32, ())
    wanted = np.float32(x.abs().max()) / np.float32(2688) if given is None else np.float32(given)
    assert whole.item() == wanted
    codes, scale_codes = cast(x.tolist(), wanted)
    assert scales.view(torch.uint8).tolist() == scale_codes
    assert unpacked(packed) == codes


def test_zeros_give_zeros() -> None:
    packed, scales, whole = utils.per_token_cast_to_nvfp4(torch.zeros((2, 32)))
    assert not packed.any()
    assert not scales.float().any()
    assert whole > 0


def test_odd_columns_and_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="even number of columns"):
        utils.per_token_cast_to_nvfp4(torch.zeros((2, 3)))
    with pytest.raises(TypeError, match="floating-point"):
        utils.per_token_cast_to_nvfp4(torch.zeros((2, 4), dtype=torch.int8))
