"""A stack of one expert gives, bit by bit, what the expert gives beside one without rows: in every documented shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import EACH_ARCH, ONE_OF_EACH_ARCH, TAKE_PACKED
from grouped_inputs import alignment_of
from inputs import is_blackwell, random_blocks, random_rows, random_values
from int8_inputs import scales, values
from packed_inputs import random

import deep_gemm

ROWS, REAL, N, K = 48, 45, 72, 256
EVERY_GROUPING = pytest.mark.parametrize("grouping", ["masked", "indices", "psum"])


def real_rows(stem: str, grouping: str, a: Any, w: Any, groups: int, device: torch.device, **options: Any):
    """Of D. All rows are the first expert's, except the last three, which are padding."""
    counts = torch.tensor([REAL, 0][:groups], dtype=torch.int32, device=device)
    if grouping == "masked":
        d = torch.full((groups, ROWS, N), float("nan"), device=device)
        getattr(deep_gemm, f"m_grouped_{stem}_gemm_nt_masked")(a, w, d, counts, ROWS, **options)
        return d[0, :REAL]
    d = torch.full((ROWS, N), float("nan"), device=device)
    layout = counts.cumsum(0, dtype=torch.int32)
    if grouping == "indices":
        layout = torch.where(torch.arange(ROWS, device=device) < REAL, 0, -1).to(torch.int32)
    with alignment_of(16):
        function = getattr(deep_gemm, f"m_grouped_{stem}_gemm_nt_contiguous")
        function(a, w, d, layout, use_psum_layout=grouping == "psum", **options)
    return d[:REAL]


def check(
    stem: str, grouping: str, a: Any, weights: Callable[[int], Any], device: torch.device, **options: Any
) -> None:
    """`a`: of one expert. `options` of two."""

    def d_of(groups: int) -> torch.Tensor:
        parts = a if isinstance(a, tuple) else (a,)
        if grouping == "masked":
            parts = tuple(torch.stack([part] * groups) for part in parts)
        cut = {name: value[:groups] if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        given = parts if isinstance(a, tuple) else parts[0]
        return real_rows(stem, grouping, given, weights(groups), groups, device, **cut)

    alone = d_of(1)
    assert alone.isfinite().all()
    assert alone.any()
    assert torch.equal(alone, d_of(2))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@EVERY_GROUPING
def test_fp8(device, grouping) -> None:
    a, b = random_rows((ROWS, K), device, 0), random_blocks((2, N, K), device, 1)
    check("fp8", grouping, tuple(a), lambda groups: (b.data[:groups], b.scales[:groups]), device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@EVERY_GROUPING
def test_bf16(device, grouping) -> None:
    a, b = (random_values(shape, device, 0).bfloat16() for shape in ((ROWS, K), (2, N, K)))
    check("bf16", grouping, a, lambda groups: b[:groups], device)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("column", [False, True], ids=["one dimension", "a column"])
@pytest.mark.parametrize("of_groups", [False, True], ids=["whole rows", "groups of K"])
@EVERY_GROUPING
def test_int8(device, grouping, of_groups, column) -> None:
    """Scales and zero points [1, N], [1, max_m], and the same as columns."""
    a, w = values((ROWS, K), device, 0), values((2, N, K), device, 1)
    zeros = torch.arange(ROWS, dtype=torch.int32, device=device) % 7 - 3
    a_scales, w_scales = scales(ROWS, device, 2), scales(2 * N, device, 3).view(2, N)
    if column:
        a_scales, zeros, w_scales = (each.unsqueeze(-1) for each in (a_scales, zeros, w_scales))
    options: dict[str, Any] = {"bias": random_values((2, N), device, 4)}
    if of_groups:
        w_scales = scales(2 * N * 2, device, 3).view(2, N, 2)
        options["recipe"] = (1, 1, 128)

    check("int8", grouping, (a, a_scales, zeros), lambda groups: (w[:groups], w_scales[:groups]), device, **options)


PACKED = {
    "int8_int4": ("int4", "int8", torch.int8),
    "fp8_int4": ("int4", "fp8", torch.float8_e4m3fn),
    "fp8_fp4": ("e2m1", "fp8", torch.float8_e4m3fn),
    "bf16_int4": ("int4", "bf16", torch.bfloat16),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("column", [False, True], ids=["one dimension", "a column"])
@pytest.mark.parametrize("stem", PACKED)
@EVERY_GROUPING
def test_packed_weights(device, grouping, stem, column) -> None:
    element, activations, dtype = PACKED[stem]
    low, high, group = (0, 15, 32) if element == "e2m1" else (-8, 7, 128)
    q = random((2, N, K), low, high).to(device, torch.int8)
    w_scales = torch.exp2(random((2, N, K // group), -6, 0).float()).to(device)
    rows = scales(ROWS, device, 2)
    if column:
        rows = rows.unsqueeze(-1)
    if stem == "fp8_fp4" and is_blackwell(device):  # in the instruction: for 32 or 128 of K each
        rows = torch.exp2(random((ROWS, K // 128), -3, 0).float()).to(device)
    data = values((ROWS, K), device, 0) if dtype == torch.int8 else random_values((ROWS, K), device, 0).to(dtype)
    a = data if activations == "bf16" else (data, rows)

    def weights(groups: int) -> deep_gemm.PackedWeights:
        packing = {"element": element, "activations": activations, "group_size": group}
        return deep_gemm.pack_weights(q[:groups], w_scales[:groups], **packing)

    check(stem, grouping, a, weights, device)
