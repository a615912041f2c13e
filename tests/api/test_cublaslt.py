"""The baselines over torch give the same products."""

from __future__ import annotations

import pytest
import torch
from devices import ON_GPU

import deep_gemm
from deep_gemm.testing import calc_diff

DEVICES = ["cpu", *ON_GPU]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("add", [False, True], ids=["", "c"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("operands", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_products(device, layout, operands, dtype, add) -> None:
    m, n, k = 48, 64, 96
    a, b, c = (
        torch.randn(m, k, device=device),
        torch.randn(n, k, device=device),
        torch.randn(m, n, device=device).to(dtype),
    )
    a, b = a.to(operands), b.to(operands)
    expected = a.double() @ b.double().T + (c.double() if add else 0)
    d = torch.full((m, n), float("nan"), dtype=dtype, device=device)
    getattr(deep_gemm, f"cublaslt_gemm_{layout}")(
        a if layout[0] == "n" else a.T.contiguous(), b if layout[1] == "t" else b.T.contiguous(), d, c if add else None
    )
    assert (d.double() - expected).abs().max() < 0.25
    assert calc_diff(d.double(), expected) < 1e-4


def test_refused() -> None:
    a, b, d = torch.zeros(4, 8), torch.zeros(6, 8), torch.zeros(4, 6)
    with pytest.raises(ValueError, match=r"cannot multiply \(4, 8\) by \(6, 8\)"):
        deep_gemm.cublaslt_gemm_nn(a, b, d)
    with pytest.raises(ValueError, match=r"d must be \[M, N\] = \[4, 6\]"):
        deep_gemm.cublaslt_gemm_nt(a, b, d.T)
    with pytest.raises(ValueError, match=r"c must have d's shape and dtype"):
        deep_gemm.cublaslt_gemm_nt(a, b, d, d.double())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_syrk_and_symm(device, dtype, batch, columns) -> None:
    """Of matrices with gaps between rows, in either major order."""
    m, k = 33, 40
    a = torch.randn(*batch, k if columns else m, (m if columns else k) + 5, device=device).to(dtype)[..., :-5]
    a = a.mT if columns else a
    d = torch.full((*batch, m, m), float("nan"), dtype=dtype, device=device)
    deep_gemm.batched_syrk(a, d)
    exact = a.double() @ a.double().mT
    assert calc_diff(d.double(), exact) < 1e-5
    assert torch.equal(d, d.mT) or calc_diff(d.mT.double(), exact) < 1e-5
    e = torch.full((*batch, m, k), float("nan"), dtype=dtype, device=device)
    deep_gemm.batched_symm(d, a, e)
    assert calc_diff(e.double(), d.double() @ a.double()) < 1e-5


def test_syrk_and_symm_leave_the_precision_of_others_as_it_is() -> None:
    before = torch.get_float32_matmul_precision()
    deep_gemm.batched_syrk(torch.ones(2, 3), torch.empty(2, 2))
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: deep_gemm.batched_syrk(x, torch.empty(2, 3)), ValueError, r"d must be \[2, 2\], got shape \[2, 3\]"),
        (lambda x: deep_gemm.batched_syrk(x.half(), torch.empty(2, 2)), TypeError, "must have one dtype, bfloat16"),
        (lambda x: deep_gemm.batched_symm(x, x, x), ValueError, r"a must be square, .* got shape \[2, 3\]"),
        (lambda x: deep_gemm.batched_symm(x[:, :2], x[:1], x), ValueError, r"cannot multiply \(2, 2\) by \(1, 3\)"),
    ],
)
def test_syrk_and_symm_refuse(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call(torch.ones(2, 3))


@pytest.mark.parametrize("device", DEVICES)
def test_nvfp4_with_scales_in_tiles(device) -> None:
    m, n, k = 130, 40, 96
    values, tiles = [], []
    for rows in (m, n):
        packed, scales, whole = deep_gemm.per_token_cast_to_nvfp4(torch.randn(rows, k, device=device))
        factors = scales.float().repeat_interleave(16, 1)
        values.append((packed, deep_gemm.cast_back_from_fp4(packed, scales.float(), gran_k=16).double()))
        assert factors.shape == (rows, k), whole
        padded = torch.zeros(-(-rows // 128) * 128, 8, device=device)
        padded[:rows, : k // 16] = scales.float()
        order = padded.view(-1, 4, 32, 2, 4).permute(0, 3, 2, 1, 4)  # [tiles of rows, of columns, 32, 4, 4]
        tiles.append(order.contiguous().to(torch.float8_e4m3fn).view(torch.uint8).flatten())
    c = torch.randn(m, n, device=device)
    d = torch.full((m, n), float("nan"), device=device)
    (a, exact_a), (b, exact_b) = values
    deep_gemm.cublaslt_nvfp4_gemm_nt((a, tiles[0]), (b, tiles[1]), d, c)
    assert calc_diff(d.double(), exact_a @ exact_b.T + c.double()) < 1e-9
    with pytest.raises(ValueError, match=r"a's scales must be 2048 contiguous bytes of E4M3 in tiles of 128 x 4"):
        deep_gemm.cublaslt_nvfp4_gemm_nt((a, tiles[1]), (b, tiles[1]), d)
    with pytest.raises(ValueError, match=r"b must be contiguous int8 \[rows, K / 2\] with K a multiple of 32"):
        deep_gemm.cublaslt_nvfp4_gemm_nt((a, tiles[0]), (b[:, :8], tiles[1]), d)


@pytest.mark.parametrize("device", ON_GPU)
def test_long_sums_of_bf16_are_fp32(device) -> None:
    """cuBLAS divides K where strides are odd; the public script allows 6e-7."""
    a = torch.randn(1539, 5125, device=device, dtype=torch.bfloat16)[:1536, :5120]
    d = torch.empty(1539, 1541, device=device, dtype=torch.bfloat16)[:1536, :1536]
    deep_gemm.batched_syrk(a, d)
    assert calc_diff(d, (a.float() @ a.float().mT).to(torch.bfloat16)) < 6e-7


@pytest.mark.parametrize("allowed", [True, False, (False, False)])
def test_torchs_settings_stay(allowed) -> None:
    backend = torch.backends.cuda.matmul
    before = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()
    try:
        backend.allow_bf16_reduced_precision_reduction = allowed
        set_to = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()
        deep_gemm.cublaslt_gemm_nt(*(torch.ones(2, 2, dtype=torch.bfloat16) for _ in range(3)))
        assert torch._C._get_cublas_allow_bf16_reduced_precision_reduction() == set_to
    finally:
        torch._C._set_cublas_allow_bf16_reduced_precision_reduction(*before)
