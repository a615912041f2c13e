"""Kernels of index logits compile without spills and without waits for wgmma that ptxas put in."""

from __future__ import annotations

import pytest
from compiled import compile_all

from deep_gemm.logits import logits_kernels

HEADS = (4, 8, 12, 20, 24, 32, 40, 64, 72, 128)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "sm_89", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("form", ["fp8", "mxfp8", "mxfp4"])
@pytest.mark.parametrize("block_kv", [0, 32, 64])
def test_nothing_spills(target, heads, d, form, block_kv) -> None:
    """For one row of queries, a few, and many."""
    d = max(d, 64) if form == "mxfp4" else d
    kinds = {"form": form, "block_kv": block_kv, "target": target, "weights": "bf16" if d == 64 else "fp32"}
    kernels = logits_kernels(heads, d, rows=[1, 2, 3, 6, 4096], **kinds)
    found = compile_all([text for _, text in kernels], target)
    wrong = [(name, result) for (name, _), result in zip(kernels, found, strict=True) if not result.is_clean]
    assert wrong == []
