"""convert/zeros.cuh and weights/zeros.py mean the same: every difference that kernels multiply, and its extremes."""

from __future__ import annotations

import struct

import torch
from ptx_tools import compile_cuda

from deep_gemm import simulator
from deep_gemm.weights.zeros import Steps

COUNT = 4096


def test_codes_become_what_their_words_say() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (COUNT, 8), generator=generator, dtype=torch.int32)  # four of each register
    codes[::2] = codes[::2, :1]  # equal ones, so that zero points may be as far as they may
    codes[:64] = torch.tensor([0, 15]).repeat(4)
    low, high = codes.amin(1), codes.amax(1)

    def between(least: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(COUNT, generator=generator)
        drawn[::3], drawn[1::3] = 0, 0.999
        return least + (drawn * (most - least + 1)).int()

    zeros = between(high - 16, low + 16)
    most = (255 // (high - low).clamp(min=1)).clamp(max=127)
    factors = between(-most, most)
    scaled = torch.stack((low * factors, high * factors))
    offsets = between(scaled.amax(0) - 127, scaled.amin(0) + 128)
    words = (codes[:, :4] | codes[:, 4:] << 4).to(torch.uint8)
    ones = torch.ones(COUNT, dtype=torch.int32)
    inputs = [words, Steps(factors, offsets).words("int8"), Steps(ones, zeros).words("fp8")]
    s8, e4m3, twos_complement = (torch.zeros(COUNT, 8, dtype=torch.int8) for _ in range(3))
    tensors = [s8, e4m3, twos_complement]
    params = struct.pack("6Q", *(t.data_ptr() for t in (*inputs, *tensors)))
    simulator.run(
        compile_cuda("subtract_functions.cu"),
        grid=[COUNT // 128],
        block=[128],
        params=params,
        tensors=tensors,
        inputs=inputs,
    )
    integers = codes * factors.unsqueeze(1) - offsets.unsqueeze(1)
    assert (integers.min(), integers.max()) == (-128, 127)
    assert torch.equal(s8.int(), integers)
    differences = codes - zeros.unsqueeze(1)
    assert differences.unique().tolist() == [*range(-16, 17)]
    assert torch.equal(e4m3.view(torch.float8_e4m3fn).float(), differences * 2.0**-9)
    signed = (codes << 4).to(torch.int8) >> 4
    assert torch.equal(twos_complement.view(torch.float8_e4m3fn).float(), signed * 2.0**-9)
