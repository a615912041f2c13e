"""What Triton compiles for sm_80 to sm_120 runs on the simulator: right numbers, no hazard by the rules of machines.

mma.sync, ldmatrix and cp.async, which have no hazard by the manual's rules either; wgmma; tcgen05, with scales that its
warps store into tensor memory; mma.sync that scales blocks.
"""

from __future__ import annotations

import multiprocessing
import struct
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="third_party/requirements-triton.txt")

from triton_kernels import WARPS, compile_ptx

from deep_gemm import simulator

K = 512
SCHEDULES = ["eager", "lazy", "random"]
TARGETS = [80, 86, 89, 90, 100, 120]
BY_MMA_SYNC = [80, 86, 89, 120]  # by the manual's rules, too
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DTYPES |= {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, ProcessPoolExecutor]]:
    """A process for each target: in one process Triton takes what it has found out of the first target for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        spawn = multiprocessing.get_context("spawn")
        processes = {target: ProcessPoolExecutor(1, mp_context=spawn) for target in TARGETS}
        yield processes
        for process in processes.values():
            process.shutdown()


def random_operand(kind: str, rows: int, k: int = K) -> tuple[torch.Tensor, torch.Tensor]:
    """As it is stored, and its values in FP64."""
    if kind == "e2m1":
        stored = torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8)
        return stored, torch.stack([FP4[(stored & 15).long()], FP4[(stored >> 4).long()]], -1).view(rows, k)
    if kind == "i8":
        stored = torch.randint(-128, 128, (rows, k), dtype=torch.int8)
    else:
        stored = torch.randn(rows, k).to(DTYPES[kind])
        if kind == "fp32":  # what TF32 holds exactly
            stored = (stored.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return stored, stored.double()


def check(
    compiled: tuple[str, int],
    tensors: list[torch.Tensor],
    expected: torch.Tensor,
    grid: tuple[int, int],
    dtype: torch.dtype,
    target: int,
) -> None:
    text, shared = compiled
    for schedule in SCHEDULES:
        d = torch.full(expected.shape, -1, dtype=dtype)
        pointers = [tensor.data_ptr() for tensor in (*tensors, d)]
        # Two pointers to scratch memory follow, unused.
        params = struct.pack(f"<{len(pointers)}QIIQQ", *pointers, *expected.shape, 0, 0)
        simulator.run(
            text,
            grid=grid,
            block=[32 * WARPS],
            smem_bytes=shared,
            params=params,
            tensors=[d],
            inputs=tensors,
            schedule=schedule,
            seed=5,
            rules="manual" if target in BY_MMA_SYNC else "hardware",
        )
        assert (d.double() - expected).abs().max() <= 1e-5 * expected.abs().max()


def tile(target: int) -> int:
    return 128 if target in (90, 100) else 64


PRODUCTS = [
    # type, whether A and B are MN-major, K
    ("bf16", False, False, K),
    ("bf16", False, True, K - 16),  # copies that fill with zeros
    ("fp16", False, True, K),
    ("fp16", True, False, K),
    ("bf16", True, True, K),
    ("fp32", False, False, K),
    ("i8", False, False, K),
    ("i8", False, False, K - 16),
    ("fp8e4nv", False, False, K),
    ("fp8e5", False, False, K),
]


def has_product(kind: str, target: int) -> bool:
    return target >= 89 or kind != "fp8e4nv"  # before, there was no FP8


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("kind", "a_mn_major", "b_mn_major", "k", "target"),
    [(*row, target) for row in PRODUCTS for target in TARGETS if has_product(row[0], target)],
)
def test_product(kind: str, a_mn_major: bool, b_mn_major: bool, k: int, target: int, compilers) -> None:
    torch.manual_seed(0)
    size = 2 * tile(target)
    (a, a_values), (b, b_values) = random_operand(kind, size, k), random_operand(kind, size, k)
    pointers = "*i32" if kind == "i8" else "*fp32"
    types = {"a_ptr": f"*{kind}", "b_ptr": f"*{kind}", "d_ptr": pointers, "m_size": "i32", "n_size": "i32"}
    constants = {
        "K": k,
        "BM": tile(target),
        "BN": tile(target),
        "BK": 64,
        "SUMS": "int32" if kind == "i8" else "float32",
        "A_MN_MAJOR": a_mn_major,
        "B_MN_MAJOR": b_mn_major,
    }
    stored = [a.T.contiguous() if a_mn_major else a, b.T.contiguous() if b_mn_major else b]
    compiled = compilers[target].submit(compile_ptx, "product", types, constants, target).result()
    check(compiled, stored, a_values @ b_values.T, (2, 2), torch.int32 if kind == "i8" else torch.float32, target)


def scales(kind: str, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    if kind == "e8m0":
        stored = torch.randint(124, 131, (128, K // group), dtype=torch.uint8)
        values = torch.exp2(stored.double() - 127)
    else:
        stored = (torch.rand(128, K // group) + 0.5).to(torch.float8_e4m3fn)
        values = stored.double()
    return stored, values.repeat_interleave(group, 1)


SCALED = [
    # formats of A and B, type of the scales, K that shares one, first target that has it
    ("e4m3", "e4m3", "e8m0", 32, 89),
    ("e4m3", "e2m1", "e8m0", 32, 89),
    ("e5m2", "e4m3", "e8m0", 32, 89),
    ("e5m2", "e5m2", "e8m0", 32, 89),
    ("e2m1", "e2m1", "e8m0", 32, 80),
    ("e2m1", "e2m1", "e4m3", 16, 100),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("row", "target"),
    [(row, target) for row in SCALED for target in TARGETS if row[4] <= target],
    ids=lambda value: str(value),
)
def test_scaled_product(row: tuple[Any, ...], target: int, compilers) -> None:
    a_format, b_format, scale_kind, group, _ = row
    torch.manual_seed(0)
    names = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "e2m1": "e2m1"}
    (a, a_values), (b, b_values) = (random_operand(names[kind], 128) for kind in (a_format, b_format))
    (a_scales, a_spread), (b_scales, b_spread) = scales(scale_kind, group), scales(scale_kind, group)
    scale_pointer = "*u8" if scale_kind == "e8m0" else "*fp8e4nv"
    pointers = {"e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "e2m1": "*u8"}
    types = {
        "a_ptr": pointers[a_format],
        "a_scales": scale_pointer,
        "b_ptr": pointers[b_format],
        "b_scales": scale_pointer,
        "d_ptr": "*fp32",
        "m_size": "i32",
        "n_size": "i32",
    }
    packed = {"e4m3": 1, "e5m2": 1, "e2m1": 2}
    constants = {"K": K, "BM": 128, "BN": 128, "BK": 128, "GROUP": group, "A_FORMAT": a_format, "B_FORMAT": b_format}
    constants |= {"A_PACKED": packed[a_format], "B_PACKED": packed[b_format]}
    compiled = compilers[target].submit(compile_ptx, "scaled_product", types, constants, target).result()
    if target == 120:  # FP4 beside FP8 Triton multiplies as BF16
        assert ("block_scale" in compiled[0]) == (packed[a_format] == packed[b_format])
    expected = (a_values * a_spread) @ (b_values * b_spread).T
    check(compiled, [a, a_scales, b, b_scales], expected, (1, 1), torch.float32, target)
