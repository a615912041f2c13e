"""Ordinary C++: loops, switches, local arrays, 64-bit and floating-point arithmetic, against the host's compiler."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import pytest
import torch
from ptx_tools import HERE, compile_cuda

from deep_gemm import simulator

THREADS, BLOCKS = 96, 3


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the reference")
@pytest.mark.parametrize(("schedule", "seed"), [("eager", 0), ("random", 3)])
def test_same_results_as_the_host(tmp_path, schedule: str, seed: int) -> None:
    library = tmp_path / "language.so"
    flags = ["-O1", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-x", "c++", str(HERE / "language.cu"), "-o", str(library)], check=True)
    expected = torch.zeros(THREADS * BLOCKS, dtype=torch.int64)
    ctypes.CDLL(str(library)).language(ctypes.c_void_p(expected.data_ptr()), THREADS * BLOCKS)
    out = torch.zeros_like(expected)
    text = compile_cuda("language.cu")
    params = struct.pack("Q", out.data_ptr())
    simulator.run(text, grid=[BLOCKS], block=[THREADS], params=params, tensors=[out], schedule=schedule, seed=seed)
    assert torch.equal(out, expected)
