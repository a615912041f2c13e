"""FP8 on sm_120a and sm_121a: the instruction with block scales, of ones, and no other; bits as by the plain one."""

from __future__ import annotations

import re

import pytest
import torch
from inputs import random_blocks, random_rows

import deep_gemm
from deep_gemm import jit, simulator
from deep_gemm._extension import C

OWN = ["sm_120a", "sm_121a"]
BLOCKS = "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"


def products(text: str, target: str) -> set[str]:
    ptx = bytes(C.jit_compile("sm120_products", text, target, "ptx")).decode()
    return set(re.findall(r"mma\.sync\.aligned\.([\w.:]+)", ptx))


@pytest.mark.parametrize("target", [*OWN, "sm_120"])
def test_the_instruction(target: str) -> None:
    device = torch.device("cpu")
    with jit.record(target) as recorded:
        a, b = random_rows((64, 512), device, 1), random_blocks((128, 512), device, 2)
        deep_gemm.fp8_gemm_nt(a, b, torch.empty(64, 128, dtype=torch.bfloat16))
    (kernel,) = [kernel for kernel in recorded.kernels if "mma" in kernel.text or "gemm" in kernel.name]
    wanted = BLOCKS if target in OWN else "m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert products(kernel.text, target) == {wanted}


def on(target: str, draw: int) -> list[torch.Tensor]:
    """A dense product, masked experts, index logits."""
    device = torch.device("cpu")
    with simulator.options(target=target):
        a, b = random_rows((33, 384), device, draw), random_blocks((136, 384), device, draw + 1)
        dense = torch.empty(33, 136)
        deep_gemm.fp8_gemm_nt(a, b, dense)
        a, b = random_rows((2, 40, 256), device, draw + 2), random_blocks((2, 72, 256), device, draw + 3)
        masked = torch.zeros(2, 40, 72)
        deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, masked, torch.tensor([40, 7], dtype=torch.int32), 24)
        masked[1, 7:] = 0
        q, k = torch.randn(5, 16, 64).to(torch.float8_e4m3fn), torch.randn(70, 64).to(torch.float8_e4m3fn)
        starts, ends = torch.zeros(5, dtype=torch.int32), torch.arange(66, 71, dtype=torch.int32)
        logits = deep_gemm.fp8_mqa_logits(q, (k, torch.rand(70)), torch.randn(5, 16), starts, ends)
    return [dense, masked, logits]


@pytest.mark.parametrize("target", OWN)
def test_the_same_bits(target: str) -> None:
    torch.manual_seed(3)
    found = on(target, 3)
    torch.manual_seed(3)
    for mine, plain in zip(found, on("sm_120", 3), strict=True):
        assert torch.equal(mine, plain)
        assert mine.abs().max() > 0
