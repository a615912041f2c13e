"""FP8 K groups in the psum layout: each starts at a multiple of the alignment, and ends where the device says."""

from __future__ import annotations

import pytest
import torch
from devices import EACH_ARCH
from grouped_inputs import alignment_of
from inputs import GuardedOutput, Operand
from k_grouped_inputs import call, groups, in_psum_layout, stacked

import deep_gemm


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("host_sizes", [True, False], ids=["ks_given", "ks_on_the_device_only"])
@pytest.mark.parametrize("ks", [[128, 256], [16, 0, 144, 400], [0, 48, 0]], ids=str)
def test_psum_layout(device, ks, host_sizes) -> None:
    x = groups(40, 72, ks, device)
    a, b, ends = in_psum_layout(x, 128)
    out = GuardedOutput(x.shape, torch.float32, device)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        a, b, out.tensor, x.ks if host_sizes else None, ends, use_psum_layout=True
    )
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_sizes_of_the_host_may_be_rounded_up(device) -> None:
    """As the public callers do, whose scales are those of the real sizes."""
    x = groups(40, 72, [112, 0, 304], device)
    with alignment_of(160):
        a, b, ends = in_psum_layout(x, 160)
        out = GuardedOutput(x.shape, torch.float32, device)
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, out.tensor, [160, 0, 320], ends, use_psum_layout=True)
        out.check()
        x.check(out.tensor)
        more = Operand(a.data, torch.cat([a.scales, a.scales]))  # than any such sizes have
        with pytest.raises(ValueError, match=r"a's scales must be \[5, 40\]"):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(more, b, out.tensor, [160, 0, 320], ends, use_psum_layout=True)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_scales_either_way_round(device) -> None:
    x = groups(40, 72, [128, 16], device)
    a, b, ends = in_psum_layout(x, 128)
    out = GuardedOutput(x.shape, torch.float32, device)
    a, b = Operand(a.data, a.scales.T), Operand(b.data, b.scales.T)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, out.tensor, None, ends, use_psum_layout=True)
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_layout_of_matrices(device) -> None:
    x = groups(40, 72, [128, 256, 0], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    ends = x.sizes().cumsum(0).int()
    call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), out.tensor, x.ks, ends, use_psum_layout=True)
    out.check()
    x.check(out.tensor)
