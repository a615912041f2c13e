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
