"""ptx/convert.cuh rounds as torch does."""

from __future__ import annotations

import struct

import torch
from ptx_tools import compile_cuda

from deep_gemm import simulator


def test_16_bit_floats_round_as_in_torch() -> None:
    torch.manual_seed(0)
    values = torch.randn(256) * torch.exp2(torch.randint(-26, 18, (256,)).float())
    values[:6] = torch.tensor([0.0, -0.0, 65519.0, 65520.0, float("inf"), 2.0**-25])
    packed_f16, packed_bf16 = (torch.zeros(256, dtype=dtype) for dtype in (torch.float16, torch.bfloat16))
    f16, back = torch.zeros(128, dtype=torch.float16), torch.zeros(128)
    tensors = [packed_f16, packed_bf16, f16, back]
    params = struct.pack("5Q", *(t.data_ptr() for t in (values, *tensors)))
    simulator.run(compile_cuda("convert_functions.cu"), block=[128], params=params, tensors=tensors, inputs=[values])
    assert torch.equal(packed_f16, values.half())
    assert torch.equal(packed_bf16, values.bfloat16())
    assert torch.equal(f16, values[::2].half())
    assert torch.equal(back, values[::2].half().float())
